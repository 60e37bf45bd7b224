"""The operators of one task, wired up, and how rows pass through them.

A pass takes rows node by node in topological order: a node gets all rows of a batch at once, whatever
number of parents they come from, interleaved as if they had come one at a time; an operator with several
ports also gets to know which parent each came from. Only in an execution unit of several nodes (they share a
store) do rows really go one at a time, depth first; rows of a node that leads to none of the others go
together, as many as come before one of the others gets a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol

from millstream.errors import MillstreamError, ProcessingError
from millstream.processors.batch import Batch, interleave
from millstream.processors.operator import Emission, Form, Operator
from millstream.processors.operator_chain import OperatorChain
from millstream.processors.operator_times import OperatorTimes
from millstream.processors.record_cache import RecordCache
from millstream.processors.table_history import TableHistory
from millstream.serdes import Serde
from millstream.task.context import FixedKeyContext, ForwardingContext, TaskServices, TransformerContext
from millstream.task.outputs import Sink
from millstream.task.serde_book import Part
from millstream.topology.execution_units import ExecutionUnit
from millstream.topology.nodes import ProcessorNode, SinkNode, SourceNode
from millstream.topology.plan import SubTopology


class Host(TaskServices, Protocol):
    """What the pipeline asks of its task."""

    @property
    def caught_up(self) -> bool:
        """Whether no record waits that the epoch has not taken in."""

    def failed(self, node: str, batch: Batch, row: int, error: Exception) -> None:
        """A row failed at a node: raise, or return to go on without it."""

    def count(self, node: str, name: str, number: int) -> None:
        """Add to a node's counter."""

    def late(self, node: str, batch: Batch, rows: Sequence[int]) -> None:
        """Rows were too late for their windows at a node."""

    def operator_store(self, name: str) -> Any:
        """A store, for an operator."""

    def operator_times(self, node: str) -> OperatorTimes:
        """What an operator has seen of time."""

    def serde(self, name: str, part: Part, given: Any) -> Serde[Any]:
        """The serde that all tasks use for something of this name."""


class NodeContext:
    """`OperatorContext` of one node."""

    def __init__(
        self,
        host: Host,
        sub: SubTopology,
        node: str,
        caches: defaultdict[str, RecordCache],
        histories: Mapping[str, TableHistory],
    ) -> None:
        self._host = host
        self._caches = caches
        self._histories = histories
        self.node = node
        self.task_id = host.task_id
        self.children = sub.children[node]
        self.times = host.operator_times(node)
        self._ordered = sub.ordered
        self.user: TransformerContext | None = None

    @property
    def caught_up(self) -> bool:
        """See `OperatorContext.caught_up`."""
        return self._host.caught_up

    def wall_clock(self) -> int:
        """See `OperatorContext.wall_clock`."""
        return self._host.wall_clock()

    def store(self, name: str) -> Any:
        """See `OperatorContext.store`."""
        return self._host.operator_store(name)

    def record_cache(self, store: str) -> RecordCache:
        """See `OperatorContext.record_cache`."""
        return self._caches[store]

    def table_history(self, store: str) -> TableHistory | None:
        """See `OperatorContext.table_history`."""
        return self._histories.get(store)

    def serde(self, name: str, part: Part, given: Any) -> Serde[Any]:
        """See `OperatorContext.serde`."""
        return self._host.serde(name, part, given)

    def failed(self, batch: Batch, row: int, error: Exception) -> None:
        """See `OperatorContext.failed`."""
        self._host.failed(self.node, batch, row, error)

    def dropped(self, count: int) -> None:
        """See `OperatorContext.dropped`."""
        self._host.count(self.node, "records-dropped", count)

    def late(self, batch: Batch, rows: Sequence[int]) -> None:
        """See `OperatorContext.late`."""
        self._host.late(self.node, batch, rows)

    def fell_back(self, form: Form, count: int) -> None:
        """See `OperatorContext.fell_back`."""
        self._host.count(self.node, f"{form}-fell-back", count)

    def processor_context(self) -> ForwardingContext:
        """See `OperatorContext.processor_context`."""
        context = ForwardingContext(self._host, self.node, self.children, ordered=self._ordered)
        self.user = context
        return context

    def fixed_key_context(self) -> FixedKeyContext:
        """See `OperatorContext.fixed_key_context`."""
        context = FixedKeyContext(self._host, self.node, self.children, ordered=self._ordered)
        self.user = context
        return context

    def transformer_context(self) -> TransformerContext:
        """See `OperatorContext.transformer_context`."""
        self.user = TransformerContext(self._host, self.node)
        return self.user


class Pipeline:
    """The running form of a sub-topology."""

    def __init__(self, sub: SubTopology, host: Host, sinks: Mapping[str, Sink]) -> None:
        self._sub = sub
        self._host = host
        self._sinks = sinks
        self._inbox: dict[str, list[Batch]] = {}
        self._flushed = 0
        self.is_opening = False
        self._contexts: dict[str, NodeContext] = {}
        self._caches: defaultdict[str, RecordCache] = defaultdict(RecordCache)
        self._histories = {store: TableHistory() for store in sub.looked_up}
        self._operators: dict[str, Operator] = {}
        self._chains: dict[str, OperatorChain] = {}

    def open(self) -> None:
        """Make the operators and show them their context, parents first."""
        self.is_opening = True
        for node in self._sub.processors:
            self._open_node(node)
        for first, nodes in self._sub.chains.items():
            self._chains[first] = OperatorChain([self._operators[name] for name in nodes])
        self.is_opening = False

    def _open_node(self, node: ProcessorNode) -> None:
        context = self._contexts[node.name] = NodeContext(
            self._host, self._sub, node.name, self._caches, self._histories
        )
        try:
            operator = node.make()
            operator.open(context)
        except MillstreamError:
            raise
        except Exception as error:
            raise ProcessingError(
                f"operator {node.name!r} of task {self._host.task_id} could not be started: "
                f"{type(error).__name__}: {error}\n  added at {node.site}"
            ) from error
        self._operators[node.name] = operator
        if node.name in self._sub.unit_of and isinstance(context.user, ForwardingContext):
            context.user.dispatch = self._dispatcher(node.name)

    def close(self) -> None:
        """Let go of the operators, parents first; one that fails does not keep the others open."""
        first_error: Exception | None = None
        for operator in self._operators.values():
            try:
                operator.close()
            except Exception as error:  # noqa: BLE001 - a user's processor may raise anything
                first_error = first_error or error
        self._operators.clear()
        self._contexts.clear()
        self._caches.clear()
        self._inbox.clear()  # not empty if it is closed in the middle of a pass, to start it again
        if first_error is not None:
            raise first_error

    def forget(self) -> None:
        """After the last `close`: know nobody any more. So nothing here is garbage that has to be found."""
        vars(self).clear()

    def run(self, roots: Mapping[str, Batch]) -> None:
        """Send rows of the sources through."""
        for source, batch in roots.items():
            self._inbox.setdefault(source, []).append(batch)
        self._drain(None)

    def flush(self) -> None:
        """The commit: cached tables send what they held back, in topological order."""
        self._flushed = 0
        self._drain(self._flush)

    @property
    def waits_for_clock(self) -> bool:
        """Whether the wall clock alone can bring something out of an operator."""
        return any(operator.waits_for_clock for operator in self._operators.values())

    def punctuate(self, node: str, callback: Callable[[int], None], timestamp: int) -> None:
        """Run a punctuator of a node and send through what it forwards."""
        context = self._contexts[node].user
        if isinstance(context, ForwardingContext):
            context.begin_punctuation()
            try:
                callback(timestamp)
            finally:
                # Also when it failed: what it had forwarded before goes on, ahead of the next record.
                context.end_punctuation()
                self._deliver(node, context.emitted())
                self._drain(None)
        else:
            callback(timestamp)

    def _drain(self, flush: Callable[[str], Batch | None] | None) -> None:
        for history in self._histories.values():
            history.begin_pass()
        for unit in self._sub.units:
            if len(unit) > 1:
                self._take_turns(unit, flush)
                continue
            name = unit[0]
            batches = self._inbox.pop(name, None)
            if batches is not None:
                self._pass_on(name, interleave(batches))
            if flush is not None and name in self._operators:
                self._deliver(name, flush(name))

    def _pass_on(self, name: str, batch: Batch) -> None:
        """Take rows through a node, or the chain that it begins, and hand on what comes out."""
        chain = self._chains.get(name)
        if chain is None:
            self._deliver(name, self._process(name, batch))
            return
        emission, counts = chain.process(batch)
        nodes = self._sub.chains[name]
        for node, (taken, given) in zip(nodes[:-1], counts, strict=False):
            if taken:
                self._host.count(node, "records-in", taken)
                self._host.count(node, "records-out", given)
        last, (taken, _) = nodes[-1], counts[-1]
        if taken:
            self._host.count(last, "records-in", taken)
            self._deliver(last, emission)

    def _process(self, name: str, batch: Batch) -> Emission:
        node = self._sub.nodes[name]
        self._host.count(name, "records-in", len(batch))
        if isinstance(node, SourceNode):
            return batch
        if isinstance(node, SinkNode):
            self._sinks[name].write(batch)
            return None
        return self._operators[name].process(batch)

    def _deliver(self, name: str, emission: Emission) -> None:
        if emission is None:
            return
        # A row that goes to several children by name counts once for each.
        batches = (emission,) if isinstance(emission, Batch) else emission.values()
        self._host.count(name, "records-out", sum(map(len, batches)))
        for edge in self._sub.edges[name]:
            batch = emission if isinstance(emission, Batch) else emission.get(edge.child)
            if batch is not None and len(batch):
                self._inbox.setdefault(edge.child, []).append(edge.carry(batch))

    def _flush(self, name: str) -> Batch | None:
        batch = self._operators[name].flush()
        if batch is None or not self._sub.ordered:
            return batch
        start = self._flushed
        self._flushed += len(batch)
        return replace(batch, order=[(row,) for row in range(start, self._flushed)])

    # Nodes that share a store: one row at a time, depth first.

    def _take_turns(self, unit: ExecutionUnit, flush: Callable[[str], Batch | None] | None) -> None:
        waiting = [
            (batch.order[row] if batch.order is not None else (), name, batch, row)
            for name in unit
            for batch in map(Batch.in_rows, self._inbox.pop(name, ()))
            for row in range(len(batch))
        ]
        waiting.sort(key=lambda entry: entry[0])
        for (name, _), run in groupby(waiting, lambda entry: (entry[1], id(entry[2]))):
            rows = list(run)
            batch = rows[0][2]
            if self._leads_out_of(unit, name):  # none of the others comes between these rows
                self._deliver(name, self._process(name, batch.take([row for *_, row in rows])))
                continue
            for *_, row in rows:
                self._process_row(name, batch.take((row,)))
        for name in unit:
            flushed = None if flush is None else flush(name)
            if flushed is not None:
                self._dispatch(name, flushed, None)

    def _leads_out_of(self, unit: ExecutionUnit, name: str) -> bool:
        return not any(child in unit for child in self._sub.children[name])

    def _process_row(self, name: str, row: Batch) -> None:
        emission = self._process(name, row)
        if isinstance(emission, Mapping):
            for child, batch in emission.items():
                self._dispatch(name, batch, child)
        elif emission is not None:
            self._dispatch(name, emission, None)

    def _dispatch(self, name: str, batch: Batch, child: str | None) -> None:
        """Send rows on, each to all children (or the named one) before the next row."""
        batch = batch.in_rows()
        self._host.count(name, "records-out", len(batch))
        unit = self._sub.unit_of[name]
        for row in range(len(batch)):
            one = batch if len(batch) == 1 else batch.take((row,))
            for edge in self._sub.edges[name]:
                if child is not None and edge.child != child:
                    continue
                if edge.child in unit:
                    self._process_row(edge.child, edge.carry(one))
                else:
                    self._inbox.setdefault(edge.child, []).append(edge.carry(one))

    def _dispatcher(self, name: str) -> Callable[[Batch, str | None], None]:
        def dispatch(batch: Batch, child: str | None) -> None:
            self._dispatch(name, batch, child)

        return dispatch
