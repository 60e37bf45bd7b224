"""Time-ordered buffers: records that wait until time has come far enough. For suppression and join grace.

Records leave in the order of their times, then of the bytes of their rows: of their keys, unless one key is
another one with zero bytes behind it. A buffer keeps one record per key, as suppression needs it (a later one
takes the place, and the time, of the one that waits), or, with `retain_duplicates`, every record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from millstream.record import Headers
from millstream.state.stores.encoded_buffer import EncodedBuffer, EncodedRecord

__all__ = ["Buffered", "TimeOrderedBuffer"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Buffered(Generic[K, V]):
    """A record that waits.

    >>> Buffered("ann", 1, timestamp=7, time=5).time
    5
    """

    key: K
    value: V | None
    timestamp: int
    time: int
    """When it may leave: the time that it waits for."""
    headers: Headers = ()
    old_value: V | None = None
    """What the receiver was told of this key last, for operators that send old values along."""


class TimeOrderedBuffer(EncodedBuffer[K], Generic[K, V]):
    """Records by the time that they wait for.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> spec = stores.time_ordered_buffer("waiting")
    >>> buffer = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    >>> buffer.put(Buffered("bob", 1, timestamp=5, time=5))
    >>> buffer.put(Buffered("ann", 2, timestamp=7, time=7))
    >>> buffer.put(Buffered("bob", 3, timestamp=9, time=9))
    >>> len(buffer), buffer.earliest_time(), buffer.get("bob").value
    (2, 5, 3)
    >>> [(record.key, record.value) for record in buffer.evict_while(lambda: buffer.earliest_time() <= 5)]
    [('bob', 3)]
    >>> [record.key for record in buffer.all()], buffer.num_bytes > 0
    (['ann'], True)
    """

    def put(self, record: Buffered[K, V]) -> None:
        """Let a record wait.

        With one record per key, one that waits already is replaced, and the new one waits for the time, and
        has the old value, of the one before it.
        """
        encoded = self.encode_one(
            record.key, record.value, record.timestamp, record.time, record.headers, record.old_value
        )
        if self.retain_duplicates:
            self.write((), (encoded._replace(number=self.next_number()),))
            return
        before = self.load((encoded.key,)).get(encoded.key)
        if before is None:
            self.write((), (encoded,))
        else:
            self.write((before,), (encoded._replace(time=before.time, old_value=before.old_value),))

    def get(self, key: K) -> Buffered[K, V] | None:
        """The record of a key that waits; None if there is none. Only with one record per key."""
        data = self._key_bytes(key)
        found = self.load((data,)).get(data)
        return None if found is None else self._record(found)

    def earliest_time(self) -> int | None:
        """The time of the record that leaves next; None if nothing waits."""
        first = self._first()
        return None if first is None else first.time

    def evict_while(self, may_leave: Callable[[], bool]) -> Iterator[Buffered[K, V]]:
        """Take records out in order, for as long as the predicate holds and there are any.

        The predicate is asked before each record, and may look at the buffer. If time alone decides,
        `evict_until` is faster.
        """
        while (first := self._first()) is not None and may_leave():
            self.write((first,), ())
            yield self._record(first)

    def evict_until(self, time: int) -> list[Buffered[K, V]]:
        """Take all records out that wait for a time up to this one, inclusive.

        >>> from millstream import serdes, stores
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> from millstream.state.stores.factory import open_store
        >>> spec = stores.time_ordered_buffer("waiting", retain_duplicates=True)
        >>> buffer = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
        >>> for time in (5, 5, 9):
        ...     buffer.put(Buffered("ann", time, timestamp=time, time=time))
        >>> [record.value for record in buffer.evict_until(5)], len(buffer)
        ([5, 5], 1)
        """
        leaving = list(self.waiting(time))
        self.write(leaving, ())
        return [self._record(record) for record in leaving]

    def all(self) -> Iterator[Buffered[K, V]]:
        """All records that wait, in order."""
        return map(self._record, self.waiting())

    def _record(self, record: EncodedRecord) -> Buffered[K, V]:
        return Buffered(
            self.key_serde.deserialize(record.key),
            None if record.value is None else self._decode(record.value),
            record.timestamp,
            record.time,
            record.headers,
            None if record.old_value is None else self._decode(record.old_value),
        )
