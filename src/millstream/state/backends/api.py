"""The one small protocol behind which state is kept: sorted bytes to bytes, and a marker.

A backend is an ordered map from keys to values, any bytes each, and one opaque **marker** that says which
version the map holds. It promises:

- Order is bytewise, for keys of any length, the empty one included. Empty values are values.
- A write is atomic with its marker: after a ``kill -9`` either all of it is there or nothing, and what
  :meth:`Backend.write` has returned for is there. A power cut may lose it, or the whole store, unless
  :meth:`Backend.sync` came in between: the changelog is what is durable (see
  :meth:`millstream.state.local.directory.TaskDirectory.lost_in_a_power_cut`).
- Backends differ in nothing that can be seen through this protocol, but in speed and in approximate sizes.

It knows nothing of versions, types, tasks, changelogs or locks between processes. One thread uses a backend
at a time, and a store is open once at a time.

Where it departs from the obvious, and why:

- **Keys and entries are strictly ascending** (sorted and distinct), and that is checked. The overlay of an
  epoch is sorted once for the changelog anyway; sorted batches are what LSM and B+ trees are fastest at; and
  the encodings of keys that these need (:mod:`.key_encoding`, :mod:`.long_keys`) are free for sorted batches.
- **bulk_load has the contract of write**, atomic and with a marker per batch. It only says "a lot, throughput
  matters". A load that was one call for all would have to be invisible until its end, or leave a half-filled
  store behind; batches that each carry the marker of their own position make a restore resumable instead.
- **A scan holds nothing open**: it reads in pages, and ends with an error if the store is written or closed
  in between. A cursor left open would pin old pages (LMDB), the database's lock (RocksDB) or a copy (memory).
- **restore belongs to the supplier**: it makes a store where there is none.
- **A write may drop a range of keys**, because windows expire by the million: a delete per row would cost as
  much as writing them did. A store whose keys begin with a segment is opened with ``segment_bytes``, so that
  a backend that has no cheap way to delete a range can keep the rows of each segment apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias, runtime_checkable

__all__ = [
    "NO_STATE",
    "Adopting",
    "Backend",
    "BackendSupplier",
    "Compactable",
    "Entry",
    "KeyRange",
    "Rewritable",
    "Row",
    "StoreSize",
]

Entry: TypeAlias = tuple[bytes, bytes | None]
"""A key and its new value, or None to delete it."""

Row: TypeAlias = tuple[bytes, bytes]
"""A key and its value."""

KeyRange: TypeAlias = tuple[bytes, bytes]
"""From a key (inclusive) to another one (exclusive)."""


@dataclass(frozen=True, slots=True)
class StoreSize:
    """About how large a store is."""

    approximate_entries: int
    bytes: int
    """On disk, files that are still to be compacted included; for memory, the keys and values."""

    def __add__(self, other: StoreSize) -> StoreSize:
        return StoreSize(self.approximate_entries + other.approximate_entries, self.bytes + other.bytes)


NO_STATE: Final = StoreSize(0, 0)
"""The size of a task without stores."""


class Backend(Protocol):
    """One store's bytes. To implement it, subclass :class:`millstream.state.backends.base.CheckedBackend`."""

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        """Return the values of strictly ascending keys, in their order; None where there is none."""

    def write(
        self,
        entries: Iterable[Entry],
        /,
        marker: bytes,
        drop: KeyRange | None = None,
        between: bytes | None = None,
    ) -> None:
        """Apply strictly ascending entries and set the marker, atomically. What is deleted may be absent.

        All rows in the range ``drop`` are removed first, in the same atomic step. Where ``between`` is given
        the write may be done in steps, the first of them with the drop: until the last one, ``between`` is
        the marker. Whoever gives it can do all of the write again.
        """

    def bulk_load(
        self,
        entries: Iterable[Entry],
        /,
        marker: bytes,
        drop: KeyRange | None = None,
        between: bytes | None = None,
    ) -> None:
        """Do what :meth:`write` does, the fastest way for one of many large batches (a restore).

        Fastest if each batch lies behind the last one. 50,000 entries and more are a good batch; it is held
        in memory.
        """

    def marker(self) -> bytes | None:
        """Return the marker of the last write; None if there never was one."""

    def scan(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[Row]:
        """Iterate from ``start`` (inclusive) to ``end`` (exclusive), ascending; None leaves a side open."""

    def scan_reverse(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[Row]:
        """Iterate over the same rows, descending."""

    def size(self) -> StoreSize:
        """Return about how large the store is; cheap."""

    def snapshot(self, path: Path) -> None:
        """Write a durable copy of the store to the new folder ``path``, whole or not at all.

        It is for :meth:`BackendSupplier.restore`, may be moved, and must not be changed: it can share
        (immutable) files with the store.
        """

    def begin_snapshot(self, path: Path) -> AbstractContextManager[Callable[[], None]]:
        """Pin the store as it is now; what the block gets is called in it and writes the snapshot.

        Meanwhile the store may be closed, and another process may open and write it: so whoever holds a lock
        on it may let go before the slow part. This process can't open it again before the block ends.
        """

    def sync(self) -> None:
        """Make everything written so far survive a power cut."""

    def close(self) -> None:
        """Let go of files and memory; closing twice is fine. Nothing written is lost."""

    def __enter__(self) -> Self:
        """Return the backend itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""


@runtime_checkable
class Rewritable(Protocol):
    """A backend whose files may stay large when rows are deleted. Backends may leave it out.

    One that is mostly free is replaced by a snapshot of itself, unless it is :class:`Compactable`.
    """

    def is_mostly_free(self) -> bool:
        """Tell whether the rows take a small part of the disk that the store takes; cheap."""


@runtime_checkable
class Compactable(Protocol):
    """A backend that can make its files small while it is open. Backends may leave it out."""

    def compact(self) -> None:
        """Give back the disk that deleted rows take."""


@runtime_checkable
class Adopting(Protocol):
    """A supplier that need not copy a snapshot that nobody else needs. Suppliers may leave it out."""

    def adopt(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> Backend:
        """Do what :meth:`BackendSupplier.restore` does with the snapshot's own files, and so use it up."""


@runtime_checkable
class BackendSupplier(Protocol):
    """Makes backends of one kind. It travels to Spark's workers, so it must pickle and hold no open store.

    To bring a backend of your own, pass such an object wherever a backend's name is taken.
    """

    @property
    def name(self) -> str:
        """The backend's name: it is part of the path on disk and of error messages."""

    @property
    def persistent(self) -> bool:
        """Whether another process finds what this one wrote; else it is restored from the changelog."""

    def open(self, path: Path, *, segment_bytes: int = 0) -> Backend:
        """Open the store in the folder ``path``, or make a new one if there is no such folder or it is empty.

        With ``segment_bytes`` the first so many bytes of a key (of each that is as long) name its segment,
        and ranges of whole segments will be dropped. It is the same at every open of a store, and changes
        nothing that can be seen.

        Raise ``StoreFormatError`` if the folder holds something else, ``DamagedStoreError`` if the store is
        damaged, ``StoreInUseError`` if it is open already.
        """

    def restore(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> Backend:
        """Make the store at ``path`` (no such folder yet, or an empty one) from a snapshot, and open it."""
