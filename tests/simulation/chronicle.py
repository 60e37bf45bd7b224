"""What was seen of an application, kept where no fault strikes.

Maintenance removes manifests and records that the application does without; an oracle does not do without
them. So a test notes everything before anything may be removed, and no later than it looks. What was noted
never changes: a manifest that becomes another one, or a record that was gone before anybody could see it, is
an error at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from tests.simulation.oracle import Held, InvariantBroken, Row

__all__ = ["Chronicle"]


class Chronicle:
    """All manifests and all records that there ever were."""

    def __init__(self) -> None:
        self.topics: dict[str, list[list[Row]]] = {}
        """By topic and partition; a record's place in the list is its offset."""
        self._manifests: dict[int, Mapping[str, Any]] = {}
        self._acknowledged = 0

    @property
    def manifests(self) -> list[Mapping[str, Any]]:
        """In the order of their epochs."""
        return [self._manifests[epoch] for epoch in sorted(self._manifests)]

    def acknowledge(self, epoch: int) -> None:
        """A coordinator was told that an epoch is committed: from here on it can't be lost."""
        self._acknowledged = max(self._acknowledged, epoch)

    def note_manifests(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Take in the manifests that are there."""
        last = found[-1]["epoch"] if found else 0
        if last < self._acknowledged:
            raise InvariantBroken(f"I1: epoch {self._acknowledged} was acknowledged, but the last is {last}")
        for manifest in found:
            known = self._manifests.setdefault(manifest["epoch"], manifest)
            if known["digest"] != manifest["digest"]:
                raise InvariantBroken(f"I7: manifest {manifest['epoch']} has become another one")

    def note_topic(self, topic: str, found: Sequence[Held]) -> list[list[Row]]:
        """Take in the records that are new in a topic; return all there ever were."""
        seen = self.topics.setdefault(topic, [])
        seen += ([] for _ in range(len(found) - len(seen)))
        for number, (rows, held) in enumerate(zip(seen, found, strict=True)):
            for offset in range(len(rows), held.end):
                if offset not in held.rows:
                    raise InvariantBroken(
                        f"I1: {topic}-{number} has lost offset {offset}, which nobody has read"
                    )
                rows.append(held.rows[offset])
        return seen

    def power_cut(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Forget the manifests that are gone, as long as nobody was told of them."""
        last = max(found[-1]["epoch"] if found else 0, self._acknowledged)
        self._manifests = {epoch: known for epoch, known in self._manifests.items() if epoch <= last}

    def copied(self) -> Chronicle:
        """Another one that knows the same."""
        return deepcopy(self)
