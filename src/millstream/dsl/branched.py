"""`split()`: a stream on its way into branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from millstream.dsl.functions import is_expression
from millstream.dsl.given import check_function
from millstream.dsl.graph import GraphNode, Handle
from millstream.errors import TopologyError
from millstream.kafka_names import KafkaNames
from millstream.processors.branch import Branch
from millstream.processors.stateless import PassThrough
from millstream.topology.operator_spec import CHAINED, COLUMNAR, PLAIN
from millstream.topology.topology import Topology

if TYPE_CHECKING:
    import polars as pl

    from millstream.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")


@dataclass(eq=False)
class _Splitter:
    """What the branches of one `split()` share: written when the graph is."""

    predicates: list[Callable[[Any, Any], object] | pl.Expr]
    children: list[str]


class Branches(dict[str, V]):
    """Streams by the names of their branches."""

    def __missing__(self, name: str) -> NoReturn:
        known = ", ".join(map(repr, self)) or "none"
        raise KeyError(
            f"there is no branch {name!r}. There are: {known}. Remedy: a branch is called by the name of the "
            'split and its own, as in split(name="orders-").branch(..., name="large"): "orders-large"'
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BranchedKStream(Handle, KafkaNames, Generic[K, V]):
    """Branches so far. The result is a dict from splitter name + branch name to stream."""

    source: KStream[K, V]
    node: GraphNode
    splitter: _Splitter
    branches: dict[str, KStream[K, V]]

    @classmethod
    def of(cls, source: KStream[K, V], name: str | None) -> BranchedKStream[K, V]:
        """A split without branches yet."""
        splitter = _Splitter([], [])
        node_name = source.graph.name_or_new(name, "KSTREAM-BRANCH-")

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            _write_branch(topology, node_name, parents, source, splitter)

        return cls(source, source.graph.add(GraphNode(node_name, write), source.node), splitter, Branches())

    def branch(
        self,
        predicate: Callable[[K, V], object] | pl.Expr,
        *,
        name: str | None = None,
        function: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
        consumer: Callable[[KStream[K, V]], object] | None = None,
    ) -> BranchedKStream[K, V]:
        """Records for which the predicate (of all branches a function, or of all an expression) holds first.

        `function` puts what it makes of the branch into the result; `consumer` uses the branch up.

        >>> from millstream import StreamsBuilder
        >>> split = StreamsBuilder().stream("orders").split(name="n-")
        >>> sorted(split.branch(lambda key, value: value < 0, name="bad").no_default_branch())
        ['n-bad']
        """
        if not is_expression(predicate):
            check_function("branch()", predicate, "key", "value")
        self.splitter.predicates.append(predicate)
        return self._with_branch(len(self.splitter.predicates), name, function, consumer)

    def default_branch(
        self,
        *,
        name: str | None = None,
        function: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
        consumer: Callable[[KStream[K, V]], object] | None = None,
    ) -> dict[str, KStream[K, V]]:
        """All other records, and the end of the split.

        >>> from millstream import StreamsBuilder
        >>> sorted(StreamsBuilder().stream("orders").split(name="n-").default_branch())
        ['n-0']
        """
        return self._with_branch(0, name, function, consumer).branches

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """The end of the split: all other records are left out.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").split().no_default_branch()
        {}
        """
        return self.branches

    def _with_branch(
        self,
        number: int,
        name: str | None,
        function: Callable[[KStream[K, V]], KStream[K, V] | None] | None,
        consumer: Callable[[KStream[K, V]], object] | None,
    ) -> BranchedKStream[K, V]:
        if function is not None and consumer is not None:
            message = "a branch takes a function or a consumer, not both"
            raise TopologyError(message)
        graph = self.source.graph
        child = self.node.name + (name if name is not None else str(number))
        self.splitter.children.append(child)
        graph.new_name(child)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_operator(child, PassThrough, parents, CHAINED)

        node = graph.add(GraphNode(child, write), self.node)
        branch = self.source.at_node(node)
        result: KStream[K, V] | None = branch
        if function is not None:
            result = function(branch)
        elif consumer is not None:
            consumer(branch)
            result = None
        branches = self.branches if result is None else Branches({**self.branches, child: result})
        return BranchedKStream(self.source, self.node, self.splitter, branches)


def _write_branch(
    topology: Topology, name: str, parents: tuple[str, ...], source: KStream[Any, Any], splitter: _Splitter
) -> None:
    """Add the operator, in its tier."""
    predicates, children = tuple(splitter.predicates), tuple(splitter.children)
    if not any(map(is_expression, predicates)):
        make = partial(Branch, predicates, children)  # type: ignore[arg-type]  # they are functions
        topology.add_operator(name, make, parents, PLAIN)
        return
    from millstream.dsl.columns import column_branch  # noqa: PLC0415 - imports Polars, which is there

    in_columns = column_branch(predicates, source.key_serde, source.value_serde)
    topology.add_operator(name, partial(in_columns, children), parents, COLUMNAR)
