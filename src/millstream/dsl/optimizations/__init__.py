"""What `build(optimization=...)` may do to the graph before it becomes a topology.

Each is a function of the graph, in a file of its own; they run in the order in which they stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from millstream.dsl.graph import Graph
from millstream.dsl.optimizations.merge_repartition_topics import merge_repartition_topics
from millstream.dsl.optimizations.reuse_ktable_source_topics import reuse_ktable_source_topics
from millstream.dsl.optimizations.single_store_self_join import single_store_self_join
from millstream.errors import TopologyError

__all__ = ["OPTIMIZATIONS", "chosen"]

Optimization = Callable[[Graph], None]

_BY_NAME: dict[str, Optimization] = {
    "reuse_ktable_source_topics": reuse_ktable_source_topics,
    "merge_repartition_topics": merge_repartition_topics,
    "single_store_self_join": single_store_self_join,
}
OPTIMIZATIONS: tuple[Optimization, ...] = tuple(_BY_NAME.values())


def chosen(optimization: str | Collection[str]) -> tuple[Optimization, ...]:
    """The optimisations that "none", "all", a name or several names stand for."""
    names = {optimization} if isinstance(optimization, str) else set(optimization)
    unknown = sorted(names - {"none", "all", *_BY_NAME})
    if unknown or (len(names) > 1 and names & {"none", "all"}):
        raise TopologyError(
            f"build(optimization={optimization!r}): give 'none', 'all', or some of {', '.join(_BY_NAME)}"
        )
    return tuple(function for name, function in _BY_NAME.items() if "all" in names or name in names)
