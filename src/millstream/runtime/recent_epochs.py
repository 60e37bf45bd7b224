"""How much the last epochs have sealed: it decides how many of them are kept, and when to tidy up.

A store may be asked for at every epoch that is kept, so its changelog is not compacted beyond the oldest one,
and the sealed files since are there. A hundred epochs of a thousand records are nothing; a hundred that each
change a twentieth of the state are five times the state. So epochs are kept, and what they wrote is left as
it is, for as long as that takes a small part of the state at most.

When so much of the state has changed that it is worth tidying up, it is done twice: the first time closes the
segments that are written to, and as soon as all epochs that are kept stand behind that, the second time
compacts them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from math import inf
from typing import Final

from millstream.runtime.manifest import Manifest, TaskEntry

__all__ = ["RecentEpochs"]

_FEWEST: Final = 2
"""Whatever they take: a reader that finds the head not published yet takes the one before it."""
_KEPT_PART: Final = 16
_NEW_PART: Final = 8
"""Which part of the state may be kept, and may be new."""
_TIMES_AS_MANY: Final = 2
"""Behind upkeep there are as many as are kept; as many again, and it is time."""


class RecentEpochs:
    """The epochs since the oldest that is kept."""

    def __init__(
        self,
        *,
        most: int,
        spare_bytes: int,
        changelogs: Container[str],
        state_bytes: Callable[[], int | None],
    ) -> None:
        self._most = most
        self._changelogs = changelogs
        self._spare_bytes = spare_bytes
        self._state_bytes = state_bytes
        self._kept: deque[tuple[int, int]] = deque()
        self._state: int | None = 0
        self._new_bytes = 0
        self._new_epochs = 0
        self._closed_at: int | None = None

    def resume(self, there: Iterable[Manifest]) -> None:
        """Begin with what another driver has left: manifests that nobody has removed are new."""
        self._kept.clear()
        self._new_bytes = self._new_epochs = 0
        self._closed_at = None
        for manifest in there:
            self.committed(manifest)
        self._state = self._state_bytes()

    def oldest_with(self, epoch: int, entries: Iterable[TaskEntry]) -> int:
        """The oldest epoch to be kept if this one is committed."""
        size, changed = self._sizes(entries)
        kept = [*self._kept, (epoch, size)][-self._most :]
        held = sum(size for _, size in kept)
        if held > self._part(_KEPT_PART) or self._new_bytes + changed > self._part(_NEW_PART):
            self._state = self._state_bytes()  # it has grown, perhaps
        while held > self._part(_KEPT_PART) and len(kept) > _FEWEST:
            held -= kept.pop(0)[1]
        return kept[0][0]

    def committed(self, manifest: Manifest) -> None:
        """Count an epoch."""
        size, changed = self._sizes(manifest.tasks[task] for task in manifest.sealed)
        self._kept.append((manifest.epoch, size))
        self._new_bytes += changed
        self._new_epochs += 1
        while self._kept[0][0] < manifest.oldest:
            self._kept.popleft()

    @property
    def have_much(self) -> bool:
        """Whether it is worth tidying up, whoever has committed them."""
        if self._closed_at is not None and self._kept[0][0] >= self._closed_at:
            return True
        is_much = self._closed_at is None and self._new_bytes > self._part(_NEW_PART)
        return is_much or self._new_epochs >= _TIMES_AS_MANY * self._most

    def tended(self, closed_at: int | None) -> None:
        """Note that it was tidied up; if they had much, all segments were closed behind an epoch."""
        self._new_epochs = 0
        if closed_at is not None:
            is_first = self._closed_at is None
            self._closed_at = closed_at if is_first else None
            if is_first:
                self._new_bytes = 0

    def _part(self, part: int) -> float:
        return inf if self._state is None else max(self._spare_bytes, self._state / part)

    def _sizes(self, entries: Iterable[TaskEntry]) -> tuple[int, int]:
        """What was sealed, and what of it are changes of state."""
        sections = [section for entry in entries for section in entry.sections]
        changes = sum(section.length for section in sections if section.topic in self._changelogs)
        return sum(section.length for section in sections), changes
