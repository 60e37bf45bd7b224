"""`TopologyTestDriver`: a whole topology in this process, one record at a time.

Each sub-topology is one production task at partition 0. A piped record, and every record that it sends
through a repartition, is an epoch of its own: it is processed, sealed and committed before the next, so
every update of a table is seen, caching or not. The epochs are those of :mod:`millstream.engine.memory`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar

from millstream.clock import milliseconds
from millstream.config import StreamsConfig, check_config
from millstream.engine.memory import MemoryApplication, MemoryRecord, RecordQueue
from millstream.errors import DriverClosedError, InvalidTimestampError, MillstreamError, UnknownStoreError
from millstream.kafka_names import KafkaNames
from millstream.record import MAX_TIME, Headers
from millstream.serdes import Serde
from millstream.state.stores.key_value import TimestampedKeyValueStore
from millstream.state.stores.session import SessionStore
from millstream.state.stores.store import StateStore
from millstream.state.stores.versioned import VersionedKeyValueStore
from millstream.state.stores.window import TimestampedWindowStore, WindowStore
from millstream.task.records import RawBatch
from millstream.testing.stores import PlainValues, PlainWindows
from millstream.testing.topics import TestInputTopic, TestOutputTopic
from millstream.topology.configured import as_configured
from millstream.topology.topology import Topology

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=StateStore[Any])


class _OldestFirst(RecordQueue):
    """Records that wait, one epoch each: always the oldest head first; topics with equal heads take turns."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[MemoryRecord]] = {}
        self._offsets: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, topic: str, rows: Iterable[MemoryRecord]) -> None:
        self._waiting.setdefault(topic, deque()).extend(rows)

    def next_offset(self, topic: str) -> int:
        return self._offsets.get(topic, 0) + len(self._waiting.get(topic, ()))

    def take(self) -> Sequence[RawBatch]:
        waiting = self._waiting
        if not waiting:
            return ()  # the clock ticks
        topic = (
            min(waiting, key=lambda name: waiting[name][0].timestamp)
            if len(waiting) > 1
            else next(iter(waiting))
        )
        queue = waiting.pop(topic)
        record = queue.popleft()
        if queue:
            waiting[topic] = queue
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        headers = (record.headers,) if record.headers else None
        return (RawBatch(topic, 0, (offset,), (record.key,), (record.value,), (record.timestamp,), headers),)

    def clear(self) -> None:
        self._waiting.clear()


class TopologyTestDriver(KafkaNames):
    """Runs a topology without Spark, JVM or disk.

    start_ms
        The wall clock at the start; it moves only by `advance_wall_clock`.
    fresh_tasks
        True: every commit is followed by a new task, as on a cluster, where a processor's own fields
        last no longer than an epoch. Run your tests once this way to find out what should be in a store.

    >>> from millstream import StreamsBuilder, serdes
    >>> from millstream.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> clicks = builder.stream("clicks", key=serdes.string, value=serdes.string)
    >>> clicks.group_by_key().count(store="counts").to_stream().to("clicks-of-users")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.store("counts").put("ann", 10)
    ...     driver.input_topic("clicks", key=serdes.string, value=serdes.string).pipe("ann", "buy", 5)
    ...     driver.output_topic("clicks-of-users", key=serdes.string, value=serdes.int64).read()
    ...     driver.store("counts").get("ann"), driver.timestamped_store("counts").get("ann")
    ...     driver.store_names(), driver.produced_topic_names()
    Record(key='ann', value=11, timestamp=5, headers=())
    (11, ValueAndTimestamp(value=11, timestamp=5))
    (['counts'], {'clicks-of-users'})
    """

    def __init__(
        self,
        topology: Topology,
        *,
        start_ms: int = 0,
        config: StreamsConfig | None = None,
        application_id: str = "test",
        fresh_tasks: bool = False,
    ) -> None:
        config = check_config(config)
        topology = as_configured(topology, config, "TopologyTestDriver")
        self._now = start_ms
        self._closed = False
        self._queue = _OldestFirst()
        self._application = MemoryApplication(
            topology.undivided_plan(),
            self._queue,
            clock=lambda: self._now,
            config=config,
            application_id=application_id,
            fresh_tasks=fresh_tasks,
        )
        self.metrics = self._application.metrics
        """Records in, out and dropped per node."""

    def input_topic(
        self,
        name: str,
        *,
        key: Serde[K],
        value: Serde[V],
        start_ms: int | None = None,
        auto_advance_ms: int = 0,
    ) -> TestInputTopic[K, V]:
        """A topic to pipe records into.

        Records without a timestamp get `start_ms` (by default the wall clock), then `auto_advance_ms`
        more each.

        >>> from millstream import StreamsBuilder, serdes
        >>> from millstream.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("lines", value=serdes.string).map_values(len).to("lengths")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     lines = driver.input_topic(
        ...         "lines", key=serdes.string, value=serdes.string, start_ms=100, auto_advance_ms=10
        ...     )
        ...     lines.pipe_all([("k", "to the"), ("k", "river")])
        ...     lengths = driver.output_topic("lengths", key=serdes.string, value=serdes.int64)
        ...     [record.timestamp for record in lengths.read_all()]
        [100, 110]
        """
        self._check_open()

        def first() -> int:
            return self._now if start_ms is None else start_ms

        return TestInputTopic(name, key, value, self._pipe, first, auto_advance_ms)

    def output_topic(self, name: str, *, key: Serde[K], value: Serde[V]) -> TestOutputTopic[K, V]:
        """A topic to read results from."""
        self._check_open()

        def records() -> deque[MemoryRecord]:
            self._check_open()
            return self._application.outputs[name]

        return TestOutputTopic(name, key, value, records)

    def advance_wall_clock(self, by_ms: int | timedelta) -> None:
        """Move the wall clock and run the punctuators that are due.

        >>> from millstream import Processor, PunctuationType, StreamsBuilder
        >>> from millstream.testing import TopologyTestDriver
        >>> class Clock(Processor[bytes, bytes, bytes, bytes]):
        ...     def init(self, context):
        ...         context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, print)
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in").process(Clock)
        >>> with TopologyTestDriver(builder.build(), start_ms=500) as driver:
        ...     driver.advance_wall_clock(999)
        ...     driver.advance_wall_clock(1)
        1500
        """
        self._check_open()
        step_ms = milliseconds(by_ms, "by_ms", MillstreamError)
        if step_ms < 0:
            raise MillstreamError(f"the wall clock can't go back by {-step_ms} ms")
        self._now += step_ms
        self._application.run_epoch(tick=True)
        self._complete()

    def store(self, name: str) -> Any:
        """A store, to look into and to set up. Timestamped key-value stores show plain values."""
        store = self._find_store(name)
        return PlainValues(store, lambda: self._now) if isinstance(store, TimestampedKeyValueStore) else store

    def timestamped_store(self, name: str) -> TimestampedKeyValueStore[Any]:
        """A timestamped key-value store, with timestamps."""
        store = self._find_store(name)
        if not isinstance(store, TimestampedKeyValueStore):
            raise UnknownStoreError(f"store {name!r} keeps no timestamps: use driver.store({name!r})")
        return store

    def window_store(self, name: str) -> WindowStore[Any, Any] | PlainWindows:
        """A window store. Timestamped ones show plain values.

        >>> from millstream import Processor, StreamsBuilder, serdes, stores
        >>> from millstream.testing import TopologyTestDriver
        >>> clicks = stores.window(
        ...     "clicks", window_size_ms=10, retention_ms=60, key=serdes.string, value=serdes.int64
        ... )
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(clicks).stream("pages").process(Processor, "clicks")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.window_store("clicks").put("ann", 3, 20)
        ...     list(driver.window_store("clicks").fetch("ann", 0, 100))
        [(20, 3)]
        """
        store = self._store_of_kind(name, WindowStore, "window")
        if isinstance(store, TimestampedWindowStore):
            return PlainWindows(store, lambda: self._now)
        return store

    def timestamped_window_store(self, name: str) -> TimestampedWindowStore[Any]:
        """A timestamped window store, with timestamps.

        >>> from millstream import Processor, StreamsBuilder, ValueAndTimestamp, serdes, stores
        >>> from millstream.testing import TopologyTestDriver
        >>> clicks = stores.timestamped_window(
        ...     "clicks", window_size_ms=10, retention_ms=60, key=serdes.string, value=serdes.int64
        ... )
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(clicks).stream("pages").process(Processor, "clicks")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.timestamped_window_store("clicks").put("ann", ValueAndTimestamp(3, 25), 20)
        ...     driver.timestamped_window_store("clicks").fetch("ann", 20)
        ValueAndTimestamp(value=3, timestamp=25)
        """
        return self._store_of_kind(name, TimestampedWindowStore, "timestamped window")

    def session_store(self, name: str) -> SessionStore[Any, Any]:
        """A session store.

        >>> from millstream import Processor, StreamsBuilder, Window, Windowed, serdes, stores
        >>> from millstream.testing import TopologyTestDriver
        >>> visits = stores.session("visits", retention_ms=60, key=serdes.string, value=serdes.int64)
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(visits).stream("pages").process(Processor, "visits")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.session_store("visits").put(Windowed("ann", Window(5, 9)), 2)
        ...     driver.session_store("visits").fetch_session("ann", 5, 9)
        2
        """
        return self._store_of_kind(name, SessionStore, "session")

    def versioned_store(self, name: str) -> VersionedKeyValueStore[Any, Any]:
        """A versioned store.

        >>> from millstream import Processor, StreamsBuilder, serdes, stores
        >>> from millstream.testing import TopologyTestDriver
        >>> prices = stores.versioned_key_value(
        ...     "prices", history_retention_ms=60, key=serdes.string, value=serdes.int64
        ... )
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(prices).stream("pages").process(Processor, "prices")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     _ = driver.versioned_store("prices").put("bread", 3, timestamp=10)
        ...     driver.versioned_store("prices").get("bread", as_of=10)
        VersionedRecord(value=3, timestamp=10, valid_to=None)
        """
        return self._store_of_kind(name, VersionedKeyValueStore, "versioned")

    def store_names(self) -> list[str]:
        """The names of all stores."""
        self._check_open()
        return sorted(name for task in self._application.tasks for name in task.stores)

    def produced_topic_names(self) -> set[str]:
        """The topics that something was written to, repartitions included."""
        self._check_open()
        return set(self._application.outputs)

    def close(self) -> None:
        """Close all processors. Closing twice does no harm.

        >>> from millstream import StreamsBuilder
        >>> from millstream.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> driver = TopologyTestDriver(builder.build())
        >>> driver.close()
        >>> driver.store_names()
        Traceback (most recent call last):
        millstream.errors.DriverClosedError: the TopologyTestDriver is closed. Remedy: use it inside its
        with block, or before close()
        """
        if not self._closed:
            self._closed = True
            self._application.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self._check_open()
        if not self._application.is_read(topic):
            known = sorted(
                name
                for task in self._application.tasks
                for source in task.sub.sources
                for name in (source.topics or ([source.pattern.pattern] if source.pattern else ()))
            )
            raise MillstreamError(
                f"no source of the topology reads topic {topic!r}. "
                f"Sources read: {', '.join(known) or 'nothing'}"
            )
        if type(timestamp) is not int or abs(timestamp) > MAX_TIME:
            raise InvalidTimestampError(
                f"topic {topic!r}, partition 0, offset {self._queue.next_offset(topic)}: the timestamp is "
                f"{timestamp!r}. Remedy: give milliseconds since 1970 as an int of at most {MAX_TIME} "
                "(2**63 - 1)"
            )
        self._queue.put(topic, (MemoryRecord(key, value, timestamp, headers),))
        self._complete()

    def _complete(self) -> None:
        """Run epochs until nothing waits. If a record fails, tests may go on: what waits is forgotten."""
        while self._queue:
            self._application.run_epoch()

    def _store_of_kind(self, name: str, kind: type[S], what: str) -> S:
        store = self._find_store(name)
        if not isinstance(store, kind):
            raise UnknownStoreError(f"store {name!r} is no {what} store: use driver.store({name!r})")
        return store

    def _find_store(self, name: str) -> StateStore[Any]:
        self._check_open()
        for task in self._application.tasks:
            if name in task.stores:
                return task.stores[name]
        known = ", ".join(self.store_names()) or "none"
        raise UnknownStoreError(f"the topology has no store {name!r}. Stores are: {known}")

    def _check_open(self) -> None:
        if self._closed:
            raise DriverClosedError(
                "the TopologyTestDriver is closed. Remedy: use it inside its with block, or before close()"
            )
