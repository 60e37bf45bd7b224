"""The three kinds of node a topology is made of. Frozen data; `site` is the user's line that made it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.offset_reset import OffsetReset
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.operator import Operator
from millstream.topology.operator_spec import OperatorSpec


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics, or all topics that match a pattern."""

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key: Any
    value: Any
    timestamp_extractor: Any
    offset_reset: OffsetReset | None
    site: str
    carries_changes: bool = False
    """A table's repartition: each value on the wire is a new and an old one."""
    carries_partials: bool = False
    """The sink in front may have combined rows of a key: see `topology.combiner`."""
    from_earlier_step: bool = False
    """Its rows come from the same task's earlier step: see `topology.steps`."""
    comes_first: bool = False
    """Its rows come before all others, whatever their time: they are changes of a table that is looked up as
    it is when these are done."""

    @property
    def parents(self) -> tuple[str, ...]:
        """A source has none."""
        return ()


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Runs an operator."""

    name: str
    parents: tuple[str, ...]
    make: Callable[[], Operator]
    spec: OperatorSpec
    site: str
    make_uncached: Callable[[], Operator] | None = None
    """If it has a cache: makes it without one, so that every update goes on."""

    def without_cache(self) -> ProcessorNode:
        """The same without a cache: nor are rows combined that are updates of their own."""
        if self.make_uncached is None:
            return self
        spec = replace(self.spec, combine=None)
        return replace(self, make=self.make_uncached, spec=spec, make_uncached=None)


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes to a topic, or to the topic that `extractor(key, value, record_context)` names."""

    name: str
    parents: tuple[str, ...]
    topic: str | None
    extractor: Callable[..., str] | None
    key: Any
    value: Any
    partitioner: Any
    site: str
    carries_changes: bool = False
    combine: Aggregation | None = None
    """How rows of a key may be combined before they are sent: see `topology.combiner`."""
    to_later_step: bool = False
    """Its rows go to the same task's later step: see `topology.steps`."""


Node = SourceNode | ProcessorNode | SinkNode
