"""What the handles of one builder share: the numbering of names and the graph they add operators to.

Operators become nodes of a topology only at `build()`, because some are decided by what comes after
them: whether a table needs a store, whether it has to send old values. The order in which nodes are
written, and every number that is used up on the way, are Kafka's, so that names and `describe()` are.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from millstream.errors import TopologyError
from millstream.names import HOW_TO_NAME
from millstream.offset_reset import OffsetReset
from millstream.topology.blame import call_site, on_behalf_of
from millstream.topology.copartition import Copartition
from millstream.topology.topology import Topology

if TYPE_CHECKING:
    from millstream.dsl.grouped_table import KGroupedTable
    from millstream.dsl.kstream import KStream
    from millstream.dsl.ktable import KTable
    from millstream.windows import Windows


class Handle:
    """Mixed into what users hold: said in a few words, not with the whole graph behind it."""

    __slots__ = ()

    def __repr__(self) -> str:
        node = getattr(getattr(self, "grouped", self), "node", None)
        words = [] if node is None else [repr(node.name)]
        for name in ("queryable_store_name", "key_serde", "value_serde", "windows"):
            found = getattr(self, name, None) if name in getattr(self, "__dataclass_fields__", {}) else None
            if found is not None:
                words.append(f"{_SAID.get(name, name)}={found!r}")
        return f"{type(self).__name__}({', '.join(words)})"


_SAID = {"queryable_store_name": "store", "key_serde": "key", "value_serde": "value"}


@dataclass(eq=False, repr=False)
class GraphNode:
    """An operator before `build()`. `write` adds it to the topology, behind the named parents."""

    name: str
    write: Callable[[Topology, tuple[str, ...]], None]
    site: str = field(default_factory=call_site)
    parents: list[GraphNode] = field(default_factory=list)
    children: list[GraphNode] = field(default_factory=list)
    priority: int = 0
    changes: Literal["key", "value"] | None = None
    """What it may change in a record."""
    merges: bool = False
    """It joins several streams into one."""
    windows: Windows | None = None
    """It cuts its records by time."""
    leaves_windows: bool = False
    """It groups anew, and its groups are no windows."""
    takes_null_keys: bool = False
    """It has a use for records without a key: no repartition above it leaves them out."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def attach(self, child: GraphNode) -> None:
        """Put a node behind this one, unless it is there."""
        if child not in self.children:
            self.children.append(child)
            child.parents.append(self)

    def leads_to_null_keys(self) -> bool:
        """Whether somebody below has a use for records without a key."""
        waiting, seen = list(self.children), set(self.children)
        while waiting:
            node = waiting.pop()
            if node.takes_null_keys:
                return True
            new = [child for child in node.children if child not in seen]
            waiting += new
            seen.update(new)
        return False

    def detach(self, child: GraphNode) -> None:
        """Take a node away from behind this one."""
        if child in self.children:
            self.children.remove(child)
            child.parents.remove(self)


@dataclass(eq=False, repr=False)
class StreamSourceNode(GraphNode):
    """A stream's source: those that read the same topics become one at `build()`."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    offset_reset: OffsetReset | None = None


@dataclass(frozen=True, slots=True)
class Handles:
    """The classes of the handles that a table makes. They make tables, so its module can't import theirs."""

    stream: type[KStream[Any, Any]]
    grouped_table: type[KGroupedTable[Any, Any]]


class Graph:
    """The operators of one builder, and the counter behind their names."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        self._counter = 0
        self._priority = 0
        self._root = GraphNode("root", lambda _topology, _parents: None, site="")
        self.nodes: list[GraphNode] = []
        """All of them, in the order in which they were added."""
        self.copartitions: list[Copartition] = []
        self.topic_is_changelog: set[str] = set()
        """Stores of tables whose source topics do for their changelogs: chosen anew by each `build()`."""
        self.repartitions_for_joins: dict[object, GraphNode] = {}
        """Of each stream that was joined, the repartition that the next join uses, too, if it has no name."""
        self._row_serdes: dict[str, tuple[Any, Any]] = {}

    def new_name(self, prefix: str) -> str:
        """The next numbered name."""
        name = f"{prefix}{self._counter:010d}"
        self._counter += 1
        return name

    def new_store_name(self, prefix: str) -> str:
        """The next numbered name of a store."""
        return self.new_name(f"{prefix}STATE-STORE-")

    def name_or_new(self, given: str | None, prefix: str) -> str:
        """The given name, or a numbered one. A number is used up either way, as Kafka does."""
        numbered = self.new_name(prefix)
        return numbered if given is None else given

    def suffixed_or_new(self, given: str | None, suffix: str, prefix: str) -> str:
        """The given name with a suffix, or a numbered one."""
        numbered = self.new_name(prefix)
        if given is None:
            return numbered
        if not isinstance(given, str):
            raise TopologyError(f"{given!r} can't be a name. Remedy: {HOW_TO_NAME}")
        return given + suffix

    def add(self, node: GraphNode, *parents: GraphNode) -> GraphNode:
        """Hang a node behind its parents, or behind nothing if it is a source."""
        if node not in self.nodes:
            self.nodes.append(node)
        for parent in parents or (self._root,):
            parent.attach(node)
            node.priority = self._priority
            self._priority += 1
        return node

    def keep_row_serdes(self, *handles: KStream[Any, Any] | KTable[Any, Any]) -> None:
        """Remember which serdes fit the rows of streams or tables that meet others: they may have to wait."""
        for handle in handles:
            self._row_serdes[handle.node.name] = (handle.key_serde, handle.value_serde)

    def write(self, topology: Topology, optimizations: Sequence[Callable[[Graph], None]] = ()) -> None:
        """Write all nodes into a topology, parents first, else in the order in which they were made."""
        self._merge_equal_sources()
        self.topic_is_changelog.clear()
        for optimize in optimizations:
            optimize(self)
        written = {self._root}
        queue: list[tuple[int, int, GraphNode]] = []
        _push(queue, self._root.children)
        while queue:
            node = heapq.heappop(queue)[2]
            if node in written or not written.issuperset(node.parents):
                continue
            with on_behalf_of(node.site):
                node.write(topology, tuple(parent.name for parent in node.parents))
            written.add(node)
            _push(queue, node.children)
        for group in self.copartitions:
            topology.copartition(group)
        for name, (key, value) in self._row_serdes.items():
            topology.add_row_serdes(name, key, value)

    def rename_copartitioned(self, old: str, new: str) -> None:
        """Another source has taken the place of one that may be co-partitioned with others."""

        def renamed(names: frozenset[str]) -> frozenset[str]:
            return frozenset(new if name == old else name for name in names)

        self.copartitions = [group.renamed(renamed) for group in self.copartitions]

    def _merge_equal_sources(self) -> None:
        seen: list[StreamSourceNode] = []
        for node in list(self._root.children):
            if not isinstance(node, StreamSourceNode):
                continue
            twin = next((other for other in seen if _same_topics(other, node)), None)
            if twin is None:
                seen.append(node)
                continue
            if twin.offset_reset != node.offset_reset:
                _refuse(twin, node, "differ in offset_reset", "give both the same")
            self._root.children.remove(node)
            self.rename_copartitioned(node.name, twin.name)
            for child in list(node.children):
                node.detach(child)
                twin.attach(child)


def _push(queue: list[tuple[int, int, GraphNode]], nodes: Iterable[GraphNode]) -> None:
    for node in nodes:
        heapq.heappush(queue, (node.priority, id(node), node))


def _same_topics(one: StreamSourceNode, other: StreamSourceNode) -> bool:
    if one.pattern is not None or other.pattern is not None:
        return one.pattern is not None and one.pattern == other.pattern
    if not set(one.topics) & set(other.topics):
        return False
    if set(one.topics) != set(other.topics):
        _refuse(one, other, "overlap but are not equal", "read each topic by itself and merge() the streams")
    return True


def _refuse(one: GraphNode, other: GraphNode, what: str, remedy: str) -> None:
    message = (
        f"two streams read the same topics, and their subscriptions {what}.\n"
        f"  at {one.site}\n  at {other.site}\n  Remedy: {remedy}."
    )
    raise TopologyError(message)


def first_given(*serdes: Any) -> Any:
    """The first serde that is not None."""
    return next((serde for serde in serdes if serde is not None), None)
