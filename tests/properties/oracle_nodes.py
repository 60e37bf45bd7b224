"""The naive oracle, part one: what each operator does with one record.

Written from the semantics of Kafka Streams, sharing nothing with the engine. One record at a time, depth
first: `receive` returns after everything behind the node has happened. State is dicts of Python values.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.properties.functions import Key, Value
from tests.properties.spec import Process
from tests.properties.user_code import Program

if TYPE_CHECKING:
    from tests.properties.oracle import OracleTask

Headers = tuple[tuple[str, bytes | None], ...]


class Metadata(NamedTuple):
    """Where the input record at work was read."""

    topic: str
    partition: int
    offset: int


class Cell(NamedTuple):
    """What a table keeps of a key."""

    value: Value
    timestamp: int


@dataclass(frozen=True)
class Rec:
    """A record on its way; `old` is the value that a table's update replaces, where it is sent."""

    key: Key
    value: Value
    timestamp: int
    headers: Headers = ()
    metadata: Metadata | None = None
    old: Value = None

    def with_key(self, key: Key) -> Rec:
        return replace(self, key=key)

    def with_value(self, value: Value) -> Rec:
        return replace(self, value=value, old=None)

    def with_timestamp(self, timestamp: int) -> Rec:
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Headers) -> Rec:
        return replace(self, headers=headers)


class Rows:
    """A store: rows now, rows at the end of the last epoch, and the cached updates of this one."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {}
        self.committed: dict[str, Any] = {}
        self.pending_updates: dict[str, tuple[Node, Rec]] = {}

    def get(self, key: str) -> Any:
        return deepcopy(self.now.get(key))

    def put(self, key: str, value: Any) -> None:
        self.now[key] = deepcopy(value)
        if value is None:
            del self.now[key]

    def put_all(self, pairs: Any) -> None:
        for key, value in pairs:
            self.put(key, value)

    def put_if_absent(self, key: str, value: Any) -> Any:
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def delete(self, key: str) -> Any:
        return self.now.pop(key, None)

    def all(self) -> list[tuple[str, Any]]:
        return sorted(self.now.items())

    def range(self, start: str, end: str) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in self.all() if start <= key <= end]

    def commit(self) -> None:
        assert not self.pending_updates
        self.committed = deepcopy(self.now)


@dataclass(eq=False)
class Node:
    """A node of the graph. `number` is its place in the order of nodes."""

    name: str
    number: int = -1
    parents: list[Node] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)
    """Nodes that are attached before it, though it gets no records from them."""
    looks_up: list[str] = field(default_factory=list)
    """Stores that it only reads: it runs where they are."""
    runs_user_code: bool = False
    """It is a processor or a transformer of the user's own."""
    takes_null_keys: bool = False
    """No repartition above it leaves out records without a key."""

    def open(self, task: OracleTask) -> None:
        """The task starts."""

    def receive(self, task: OracleTask, rec: Rec) -> None:
        """One record: here it goes on as it is."""
        task.forward(self, rec)


@dataclass(eq=False)
class SourceNode(Node):
    topics: tuple[str, ...] = ()


@dataclass(eq=False)
class SinkNode(Node):
    topic_of: Callable[[Rec], str] = lambda _: ""
    internal: bool = False
    partition_of: Callable[[Rec, int], int] | None = None

    def receive(self, task: OracleTask, rec: Rec) -> None:
        task.write(self, self.topic_of(rec), rec)


@dataclass(eq=False)
class KeyFilter(Node):
    """In front of a repartition: records without a key go no further, unless somebody behind wants them."""

    lets_all_by: bool = False

    def receive(self, task: OracleTask, rec: Rec) -> None:
        if rec.key is not None or self.lets_all_by:
            task.forward(self, rec)


@dataclass(eq=False)
class Stateless(Node):
    """From a record to those that go on."""

    function: Callable[[Rec], list[Rec]] = lambda rec: [rec]

    def receive(self, task: OracleTask, rec: Rec) -> None:
        for one in self.function(rec):
            task.forward(self, one)


@dataclass(eq=False)
class LookNode(Node):
    ends: bool = False

    def receive(self, task: OracleTask, rec: Rec) -> None:
        task.saw(self.name, rec)
        if not self.ends:
            task.forward(self, rec)


@dataclass(eq=False)
class SplitNode(Node):
    predicates: tuple[Callable[[Key, Value], bool], ...] = ()

    def receive(self, task: OracleTask, rec: Rec) -> None:
        chosen = len(self.predicates)
        for number, predicate in enumerate(self.predicates):
            if predicate(rec.key, rec.value):
                chosen = number
                break
        if chosen < len(self.children):
            task.deliver(self.children[chosen], rec)


class Context:
    """What the user's code may ask."""

    def __init__(self, node: Node, task: OracleTask, rec: Rec | None) -> None:
        self._node = node
        self._task = task
        self.record_metadata = rec.metadata if rec is not None else None
        self.headers = rec.headers if rec is not None else ()

    def state_store(self, name: str) -> Rows:
        return self._task.store(name)

    def forward(self, rec: Rec, child: str | None = None) -> None:
        self._task.forward(self._node, rec, child)

    def current_stream_time_ms(self) -> int:
        return self._task.stream_time

    def current_system_time_ms(self) -> int:
        return self._task.clock()

    def commit(self) -> None: ...


@dataclass(eq=False)
class ProcessNode(Node):
    op: Process = None  # type: ignore[assignment]
    runs_user_code: bool = True

    def open(self, task: OracleTask) -> None:
        task.programs[self.name] = Program(self.op, Context(self, task, None), Rec, task.schedule)

    def receive(self, task: OracleTask, rec: Rec) -> None:
        program = task.programs[self.name]
        idle, program.context = program.context, Context(self, task, rec)
        try:
            program.process(rec)
        finally:
            program.context = idle


@dataclass(eq=False)
class GlobalKeeper(Node):
    """Writes a global store. A table's global store keeps timestamps."""

    with_timestamps: bool = True

    def receive(self, task: OracleTask, rec: Rec) -> None:
        if rec.key is not None:
            plain = rec.value is None or not self.with_timestamps
            task.store(self.stores[0]).put(rec.key, rec.value if plain else Cell(rec.value, rec.timestamp))
