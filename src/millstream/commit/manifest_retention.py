"""How much the last epochs have sealed: it decides how many are kept, and when maintenance is due.

A store may be asked for at every epoch that is kept, so its changelog is not compacted beyond the oldest one,
and the sealed files since are there. A hundred epochs of a thousand records are nothing; a hundred that each
change a twentieth of the state are five times the state. So epochs are kept, and what they wrote is left as
it is, for as long as that takes a small part of the state at most.

What is older can be compacted. It is worth it when it is a small part of the state, too; when it is more, the
epochs wait for it: back-pressure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from enum import IntEnum
from math import inf
from typing import Final, NamedTuple

from millstream.commit.manifest import Record, TaskEntry

_FEWEST: Final = 2
"""Whatever they take: a reader that finds the head not published yet takes the one before it."""
_KEPT_PART: Final = 16
_NEW_PART: Final = 8
_BACKPRESSURE_PART: Final = 2
"""Which part of the state may be kept, is worth maintenance, and brings back-pressure."""
_BACKPRESSURE_SPARES: Final = 16
"""But small state, of which every part is spare, brings it only when there is so much more."""
_SEALED_BYTES: Final = 32 << 20
"""Outputs and repartitions are not state, but lie there as well: so much of them is worth it, or half of the
state if that is more."""
_TIMES_AS_MANY: Final = 2
"""Behind maintenance there are as many as are kept; as many again, and it is time."""


class Urgency(IntEnum):
    """How much there is to do."""

    NONE = 0
    WORTH_IT = 1
    """Enough to come early."""
    BACKPRESSURE = 2
    """So much that it does not rest, and is waited for."""


class Gone(NamedTuple):
    """Epochs that were committed, and what those of them had sealed that are no longer kept."""

    epochs: int = 0
    sealed_bytes: int = 0
    changed_bytes: int = 0
    """What of it are changes of state."""


class _Epoch(NamedTuple):
    number: int
    sealed_bytes: int
    changed_bytes: int
    """What of it are changes of state."""


class ManifestRetention:
    """The epochs since the oldest that is kept, and how much came before and awaits maintenance.

    Epochs are committed in one thread and maintained in another: each has counters of its own.
    """

    def __init__(
        self,
        *,
        most: int,
        spare_bytes: int,
        changelogs: Container[str],
        changelog_sizes: Callable[[], Sequence[int] | None],
    ) -> None:
        self._most = most
        self._changelogs = changelogs
        self._spare_bytes = spare_bytes
        self._changelog_sizes = changelog_sizes
        self._state: int | None = None
        """As long as it is not known, all are kept."""
        self._partitions = 0
        self._kept: deque[_Epoch] = deque()
        self._gone = Gone()
        self._maintained = Gone()

    def resume(self, there: Iterable[Record]) -> None:
        """Begin with what another coordinator has left: manifests that nobody has removed are new."""
        self._kept.clear()
        self._gone = self._maintained = Gone()
        for manifest in there:
            self.committed(manifest)
        self._measure()

    def oldest_with(self, epoch: int, entries: Iterable[TaskEntry]) -> int:
        """The oldest epoch to be kept if this one is committed."""
        kept = [*self._kept, self._epoch(epoch, entries)][-self._most :]
        held = sum(epoch.sealed_bytes for epoch in kept)
        while held > self._part(_KEPT_PART) and len(kept) > _FEWEST:
            held -= kept.pop(0).sealed_bytes
        return kept[0].number

    def committed(self, manifest: Record) -> None:
        """Count an epoch."""
        entries = (manifest.tasks[task] for task in manifest.sealed)
        self._kept.append(self._epoch(manifest.epoch, entries))
        epochs, sealed, changed = self._gone
        while self._kept[0].number < manifest.oldest:
            gone = self._kept.popleft()
            sealed, changed = sealed + gone.sealed_bytes, changed + gone.changed_bytes
        self._gone = Gone(epochs + 1, sealed, changed)

    @property
    def gone(self) -> Gone:
        """All that was counted so far."""
        return self._gone

    def urgency(self) -> Urgency:
        """Whether maintenance is worth it, or so due that epochs should wait, whoever has committed them.

        Back-pressure comes from changes of state. Many small epochs, and large outputs, are just worth it.
        """
        changed = self._gone.changed_bytes - self._maintained.changed_bytes
        if changed and changed >= self._part(_BACKPRESSURE_PART, _BACKPRESSURE_SPARES):
            return Urgency.BACKPRESSURE
        sealed = self._gone.sealed_bytes - self._maintained.sealed_bytes
        epochs = self._gone.epochs - self._maintained.epochs
        is_worth_it = (
            (changed and changed >= self._part(_NEW_PART))
            or sealed >= max(_SEALED_BYTES, (self._state or 0) / 2)
            or epochs >= _TIMES_AS_MANY * self._most
        )
        return Urgency.WORTH_IT if is_worth_it else Urgency.NONE

    def maintained(self, gone: Gone) -> None:
        """Note that maintenance has done all that was gone when it began."""
        self._maintained = gone
        self._measure()

    def _measure(self) -> None:
        """Learn how much state there is: of the changelogs, what does not wait for being compacted."""
        sizes = self._changelog_sizes()
        new = self._gone.changed_bytes - self._maintained.changed_bytes
        new += sum(epoch.changed_bytes for epoch in tuple(self._kept))
        self._state = None if sizes is None else max(0, sum(sizes) - new)
        self._partitions = 0 if sizes is None else len(sizes)

    def _part(self, part: int, spares: int = 1) -> float:
        if self._state is None:
            return inf
        return max(spares * self._spare_bytes * self._partitions, self._state / part)

    def _epoch(self, number: int, entries: Iterable[TaskEntry]) -> _Epoch:
        sections = [section for entry in entries for section in entry.sections]
        changes = sum(section.length for section in sections if section.topic in self._changelogs)
        return _Epoch(number, sum(section.length for section in sections), changes)
