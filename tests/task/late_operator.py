"""An operator that drops what is late by its own stream time, as those of windows do."""

from __future__ import annotations

from dataclasses import dataclass

from millstream import Topology
from millstream.processors.batch import Batch
from millstream.processors.operator import Operator
from millstream.topology.operator_spec import PLAIN


@dataclass
class DropLate(Operator):
    """Lets records through that are at most `grace_ms` older than the newest one."""

    grace_ms: int
    named: int = 1
    """How often a late row is named, as one is that is too late for several windows."""

    def process(self, batch: Batch) -> Batch:
        times, kept, late = self.context.times, list[int](), list[int]()
        for row, timestamp in enumerate(batch.timestamps):
            times.observed = max(times.observed, timestamp)
            (late if timestamp + self.grace_ms < times.observed else kept).append(row)
        if late:
            self.context.late(batch, [row for row in late for _ in range(self.named)])
        return batch.take(kept)


def drop_late(topology: Topology, parent: str, *, grace_ms: int = 0, named: int = 1) -> Topology:
    """Add such an operator, called "drop-late"."""
    topology.add_operator("drop-late", lambda: DropLate(grace_ms, named), [parent], PLAIN)
    return topology
