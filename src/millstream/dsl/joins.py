"""How joins of streams are built: names, stores, repartitions and co-partitioning are Kafka's.

Kafka runs a join of two streams as five nodes that share stores. Here the one that brings both sides together
is the operator at work, and the others hand their records on (see `topology.operator_spec`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.dsl.given import check_joiner
from millstream.dsl.graph import Graph, GraphNode, first_given
from millstream.dsl.repartition import repartition_node
from millstream.errors import TopologyError
from millstream.processors.joins.self_join import SelfJoin
from millstream.processors.joins.stream_stream import StreamStreamJoin
from millstream.processors.stateless import PassThrough
from millstream.serdes import bytes as raw_bytes
from millstream.serdes.descriptor import describe
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.topology.blame import call_site
from millstream.topology.copartition import Copartition, JoinSide, SideKind
from millstream.topology.operator_spec import PLAIN, OperatorSpec
from millstream.topology.topology import Topology
from millstream.windows import JoinWindows

if TYPE_CHECKING:
    from millstream.dsl.kstream import KStream

__all__ = [
    "FOREIGN_KEY",
    "INNER",
    "LEFT",
    "LEFT_FOREIGN_KEY",
    "OUTER",
    "JoinKind",
    "StreamJoinNode",
    "StreamJoined",
    "check_same_graph",
    "copartitioned",
    "hand_on",
    "join_streams",
    "joined_key_serde",
    "repartitioned_for_join",
]


@dataclass(frozen=True, slots=True)
class JoinKind:
    """Which records are wanted without a partner, too."""

    method: str
    """What users call."""
    left: bool = False
    right: bool = False


INNER: Final = JoinKind("join")
LEFT: Final = JoinKind("left_join", left=True)
OUTER: Final = JoinKind("outer_join", left=True, right=True)
FOREIGN_KEY: Final = JoinKind("foreign_key_join")
LEFT_FOREIGN_KEY: Final = JoinKind("left_foreign_key_join", left=True)


@dataclass(frozen=True, slots=True)
class StreamJoined:
    """What users say about a join of two streams."""

    with_key: bool = False
    key: Any = None
    value: Any = None
    other_value: Any = None
    name: str | None = None
    store: str | None = None
    logging: bool = True


@dataclass(frozen=True, slots=True)
class _Names:
    """The nodes of a join, and its stores."""

    this_windowed: str
    other_windowed: str
    this: str
    other: str
    merge: str
    this_store: str
    other_store: str
    shared_store: str | None

    @classmethod
    def of(cls, graph: Graph, kind: JoinKind, joined: StreamJoined) -> _Names:
        """Given ones, or numbered ones. Numbers are used up either way, as Kafka does."""
        name, base = joined.name, joined.store
        this_suffix = "-outer-this-join" if kind.right else "-this-join"
        other_suffix = "-outer-other-join" if kind.left else "-other-join"
        this_windowed = graph.suffixed_or_new(name, "-this-windowed", "KSTREAM-WINDOWED-")
        other_windowed = graph.suffixed_or_new(name, "-other-windowed", "KSTREAM-WINDOWED-")
        this = graph.new_name("KSTREAM-OUTERTHIS-" if kind.right else "KSTREAM-JOINTHIS-")
        other = graph.new_name("KSTREAM-OUTEROTHER-" if kind.left else "KSTREAM-JOINOTHER-")
        shared = f"KSTREAM-OUTERSHARED-{this[-10:]}"
        if base is not None:
            shared = f"{base}-{'outer' if kind.right else 'left'}-shared-join"
        return cls(
            this_windowed,
            other_windowed,
            this if name is None else name + this_suffix,
            other if name is None else name + other_suffix,
            graph.suffixed_or_new(name, "-merge", "KSTREAM-MERGE-"),
            f"{this if base is None else base + this_suffix}-store",
            f"{other if base is None else base + other_suffix}-store",
            f"{shared}-store" if kind.left else None,
        )


@dataclass(eq=False, repr=False)
class StreamJoinNode(GraphNode):
    """A join of two streams in the graph."""

    other_windowed: GraphNode | None = None
    self_join: bool = False
    """Both sides are one stream, and its records are kept once."""


def join_streams(
    left: KStream[Any, Any],
    right: KStream[Any, Any],
    joiner: Callable[..., Any],
    windows: JoinWindows,
    kind: JoinKind,
    joined: StreamJoined,
) -> KStream[Any, Any]:
    """Build the join of two streams."""
    check_same_graph(kind.method, left.graph, right)
    check_joiner(kind.method, joiner, with_key=joined.with_key)
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"{kind.method}() of two streams with the windows {windows!r}. Remedy: say how far apart in time "
            "records may be, as in JoinWindows(timedelta(minutes=5))"
        )
    key = joined_key_serde(kind.method, joined.key, left.key_serde, right.key_serde)
    graph, name = left.graph, joined.name
    left = repartitioned_for_join(left, name and f"{name}-left", key, joined.value)
    right = repartitioned_for_join(right, name and f"{name}-right", key, joined.other_value)
    sources = copartitioned(graph, kind, ("stream", left.source_names), ("stream", right.source_names))
    names = _Names.of(graph, kind, joined)
    builders = _Builders.of(names, windows, joined, key, left.value_serde, right.value_serde)
    graph.add(_described(names.this_windowed, names.this_store), left.node)
    other_windowed = graph.add(_described(names.other_windowed, names.other_store), right.node)

    def write(topology: Topology, _parents: tuple[str, ...]) -> None:
        if node.self_join:
            make_self = partial(SelfJoin, names.this_store, windows, joiner, with_key=joined.with_key)
            topology.add_operator(names.merge, make_self, (names.this_windowed,), PLAIN)
            topology.add_state_store(builders.this, names.merge)
            return
        shared = () if names.shared_store is None else (names.shared_store,)
        hand_on(topology, names.this, (names.this_windowed,), names.other_store, *shared)
        hand_on(topology, names.other, (names.other_windowed,), names.this_store, *shared)
        make = partial(
            StreamStreamJoin,
            (names.this_store, names.other_store),
            windows,
            joiner,
            with_key=joined.with_key,
            outer=(kind.left, kind.right),
            unmatched=names.shared_store,
        )
        spec = OperatorSpec(ports=2, described_stores=())
        topology.add_operator(names.merge, make, (names.this, names.other), spec)
        for builder in builders.all():
            topology.add_state_store(builder, names.merge)

    node = StreamJoinNode(names.merge, write, takes_null_keys=kind.left, other_windowed=other_windowed)
    graph.add(node, left.node, right.node)
    return replace(
        left,
        node=node,
        key_serde=key,
        value_serde=None,
        source_names=sources,
        needs_repartition=False,
        in_columns=False,
    )


def check_same_graph(method: str, graph: Graph, other: Any) -> None:
    """Refuse to join what was built by two builders."""
    if other.graph is not graph:
        message = f"{method}() of streams from two StreamsBuilders: build both with the same one"
        raise TopologyError(message)


def copartitioned(
    graph: Graph,
    kind: JoinKind,
    left: tuple[SideKind, frozenset[str]],
    right: tuple[SideKind, frozenset[str]],
) -> frozenset[str]:
    """Demand as many partitions of both sides; their sources together."""
    asked_by = f"{kind.method}() at {call_site()}"
    graph.copartitions.append(Copartition.of_join(JoinSide(*left), JoinSide(*right), asked_by))
    return left[1] | right[1]


def joined_key_serde(method: str, given: Any, left: Any, right: Any) -> Any:
    """The serde of both sides' keys: they must have the same bytes, or they are in different partitions."""
    if given is None and left is not None and right is not None and describe(left) != describe(right):
        raise TopologyError(
            f"{method}() of keys of {describe(left)} with keys of {describe(right)}: equal keys would have "
            "different bytes, and never meet. Remedy: read both sides with the same key serde, or give the "
            "one that fits both with key=, if their bytes are the same"
        )
    return first_given(given, left, right)


def repartitioned_for_join(
    stream: KStream[Any, Any], prefix: str | None, key: Any, value: Any
) -> KStream[Any, Any]:
    """The stream with its records in the partitions of their keys, and with the serdes of a join.

    `prefix` names the repartition. Without one it has the name of the stream, or is that of the stream's last
    join.
    """
    key_serde, value_serde = first_given(key, stream.key_serde), first_given(value, stream.value_serde)
    if not stream.needs_repartition:
        return replace(stream, key_serde=key_serde, value_serde=value_serde)
    graph = stream.graph
    # Numbers are used up even if the repartition is there already, as Kafka does.
    node: GraphNode = repartition_node(graph, prefix or stream.node.name, key_serde, value_serde)
    shared = graph.repartitions_for_joins.get(stream) if prefix is None else None
    if shared is not None:
        node = shared
    else:
        graph.repartitions_for_joins[stream] = graph.add(node, stream.node)
    return replace(
        stream,
        node=node,
        key_serde=key_serde,
        value_serde=value_serde,
        source_names=frozenset({node.name}),
        needs_repartition=False,
        in_columns=False,
    )


@dataclass(frozen=True, slots=True)
class _Builders:
    """The stores of a join."""

    this: StoreBuilder
    other: StoreBuilder
    shared: StoreBuilder | None

    @classmethod
    def of(
        cls,
        names: _Names,
        windows: JoinWindows,
        joined: StreamJoined,
        key: Any,
        value: Any,
        other_value: Any,
    ) -> _Builders:
        """Both sides' records for as long as others can be joined with them, and those that wait."""
        this = StoreBuilder(
            names.this_store,
            StoreKind.WINDOW,
            key,
            value,
            logging=joined.logging,
            retention_ms=windows.size_ms + windows.grace_ms,
            window_size_ms=windows.size_ms,
            retain_duplicates=True,
        )
        shared = None
        if names.shared_store is not None:
            # The operator writes bytes of its own: by time, side and key.
            shared = StoreBuilder(
                names.shared_store, StoreKind.LIST_VALUE, raw_bytes, raw_bytes, logging=joined.logging
            )
        return cls(this, replace(this, name=names.other_store, value=other_value), shared)

    def all(self) -> list[StoreBuilder]:
        """All of them."""
        return [self.this, self.other, *([] if self.shared is None else [self.shared])]


def _described(name: str, *stores: str) -> GraphNode:
    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        hand_on(topology, name, parents, *stores)

    return GraphNode(name, write)


def hand_on(topology: Topology, name: str, parents: tuple[str, ...], *stores: str) -> None:
    """A node that descriptions show with stores, and that only hands its records on."""
    topology.add_operator(name, PassThrough, parents, replace(PLAIN, described_stores=stores))
