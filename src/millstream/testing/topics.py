"""Typed ends of a test: topics to pipe records into, and topics to read results from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

from millstream.engine.memory import MemoryRecord
from millstream.errors import MillstreamError
from millstream.notebook import Shown, ShownAsTable
from millstream.record import Headers, Record
from millstream.serdes import Serde, serde_failure

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


Pipe = Callable[[str, bytes | None, bytes | None, int, Headers], None]


class TestInputTopic(Generic[K, V]):
    """A topic to pipe records into. Made by `TopologyTestDriver.input_topic`.

    >>> from millstream import Record, StreamsBuilder, serdes
    >>> from millstream.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> builder.stream("lines", value=serdes.string).map_values(len).to("lengths")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     lines = driver.input_topic("lines", key=serdes.string, value=serdes.string)
    ...     lengths = driver.output_topic("lengths", key=serdes.string, value=serdes.int64)
    ...     lines.pipe("k", "to the river")
    ...     lines.advance_time(60_000)
    ...     lines.pipe("k", "to sea")
    ...     lines.pipe("k", "at sea", timestamp=70_000, headers=(("page", b"1"),))
    ...     lines.pipe_all([("k", "to"), ("k", "the river")], start_ms=80_000, advance_ms=10)
    ...     lines.pipe_all([Record("k", "on and on", timestamp=90_000)])
    ...     for length in lengths.read_all():
    ...         print(length.value, length.timestamp, length.headers)
    12 0 ()
    6 60000 ()
    6 70000 (('page', b'1'),)
    2 80000 ()
    9 80010 ()
    9 90000 ()
    """

    __test__ = False  # pytest: not a test class

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        pipe: Pipe,
        start_ms: Callable[[], int],
        auto_advance_ms: int,
    ) -> None:
        self.name = name
        self._key = key
        self._value = value
        self._pipe = pipe
        self._start_ms = start_ms
        self._auto_advance_ms = auto_advance_ms
        self._next_ms: int | None = None

    def __repr__(self) -> str:
        return f"<TestInputTopic {self.name!r}>"

    def pipe(
        self, key: K | None, value: V | None, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Send one record through the whole topology.

        Without a timestamp the record gets the topic's own clock, which then advances by
        `auto_advance_ms`.
        """
        if timestamp is None:
            timestamp = self._start_ms() if self._next_ms is None else self._next_ms
            self._next_ms = timestamp + self._auto_advance_ms
        self._pipe(
            self.name,
            _serialize(self.name, "key", self._key, key),
            _serialize(self.name, "value", self._value, value),
            timestamp,
            tuple(headers),
        )

    def pipe_all(
        self,
        records: Iterable[tuple[K | None, V | None] | Record[K, V]],
        *,
        start_ms: int | None = None,
        advance_ms: int = 0,
    ) -> None:
        """Send many records: pairs of key and value, or `Record`s with timestamps of their own."""
        for number, record in enumerate(records):
            if isinstance(record, Record):
                self.pipe(record.key, record.value, record.timestamp, record.headers)
            else:
                timestamp = None if start_ms is None else start_ms + number * advance_ms
                self.pipe(record[0], record[1], timestamp)

    def advance_time(self, by_ms: int) -> None:
        """Move the topic's own clock."""
        now = self._start_ms() if self._next_ms is None else self._next_ms
        self._next_ms = now + by_ms


class TestOutputTopic(ShownAsTable, Generic[K, V]):
    """A topic to read results from. Made by `TopologyTestDriver.output_topic`.

    >>> from millstream import StreamsBuilder, serdes
    >>> from millstream.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> builder.stream("lines", value=serdes.string).map_values(len).to("lengths")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     lines = driver.input_topic("lines", key=serdes.string, value=serdes.string)
    ...     lengths = driver.output_topic("lengths", key=serdes.string, value=serdes.int64)
    ...     lines.pipe_all([("a", "to"), ("b", "the"), ("a", "river")])
    ...     len(lengths), lengths.read(), len(lengths)
    ...     [(record.key, record.value) for record in lengths.read_all()], lengths.is_empty()
    ...     lines.pipe_all([("a", "to"), ("b", "the"), ("a", "river")])
    ...     lengths.read_values()
    ...     lines.pipe_all([("a", "to"), ("b", "the"), ("a", "river")])
    ...     lengths.read_latest()
    (3, Record(key='a', value=2, timestamp=0, headers=()), 2)
    ([('b', 3), ('a', 5)], True)
    [2, 3, 5]
    {'a': 5, 'b': 3}
    """

    __test__ = False  # pytest: not a test class

    def __init__(
        self, name: str, key: Serde[K], value: Serde[V], records: Callable[[], deque[MemoryRecord]]
    ) -> None:
        self.name = name
        self._key = key
        self._value = value
        self._records = records

    def __repr__(self) -> str:
        return f"<TestOutputTopic {self.name!r} with {len(self)} records to read>"

    def _shown(self) -> Shown:
        """For notebooks: what was not read yet. Nothing is taken out."""
        records = map(self._decode, list(self._records()))
        return ("key", "value", "timestamp"), ((one.key, one.value, one.timestamp) for one in records)

    def read(self) -> Record[K, V]:
        """The next record."""
        records = self._records()
        if not records:
            raise MillstreamError(f"topic {self.name!r} has no record left to read")
        return self._decode(records.popleft())

    def read_all(self) -> list[Record[K, V]]:
        """All records that were not read yet."""
        return [self.read() for _ in range(len(self._records()))]

    def read_values(self) -> list[V]:
        """The values of all records that were not read yet."""
        return [record.value for record in self.read_all()]

    def read_latest(self) -> dict[K, V]:
        """The last value of each key among the records that were not read yet."""
        return {record.key: record.value for record in self.read_all()}

    def is_empty(self) -> bool:
        """Whether everything was read."""
        return not self._records()

    def __len__(self) -> int:
        return len(self._records())

    def _decode(self, raw: MemoryRecord) -> Record[K, V]:
        key = _deserialize(self.name, "key", self._key, raw.key)
        value = _deserialize(self.name, "value", self._value, raw.value)
        return Record(key, value, raw.timestamp, raw.headers)


def _serialize(topic: str, part: str, serde: Serde[T], value: T | None) -> bytes | None:
    if value is None:
        return None
    try:
        return serde.serialize(value)
    except Exception as error:
        raise serde_failure(error, serde=serde, value=value, part=part, topic=topic) from error


def _deserialize(topic: str, part: str, serde: Serde[T], data: bytes | None) -> T:
    if data is None:
        return cast("T", None)  # a tombstone, which the types of Record do not admit
    try:
        return serde.deserialize(data)
    except Exception as error:
        raise serde_failure(error, serde=serde, data=data, part=part, topic=topic) from error
