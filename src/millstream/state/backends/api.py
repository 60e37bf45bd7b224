"""The one small interface behind which state is kept: sorted bytes to bytes, and a marker.

A backend is an ordered map from keys to values, any bytes each, and one opaque **marker** that says which
version the map holds. It promises:

- Order is bytewise, for keys of any length, the empty one included. Empty values are values.
- A write is atomic with its marker: after a ``kill -9`` either all of it is there or nothing, and what
  :meth:`Backend.write` has returned for is there. A power cut may lose it, or the whole store, unless
  :meth:`Backend.sync` came in between: the changelog is what is durable (see
  :meth:`millstream.state.local.directory.TaskDirectory.lost_in_a_power_cut`).
- Backends differ in nothing that can be seen through this interface, but in speed and in approximate sizes.

It knows nothing of versions, types, tasks, changelogs or locks between processes. One thread uses a backend
at a time, and a store is open once at a time. Other threads may read it meanwhile, as long as they hold
``unwritten``: so what a backend brings for :meth:`Backend.get_many`, :meth:`Backend.scan`,
:meth:`Backend.marker` and :meth:`Backend.size` is called by several threads at once, never beside a write.

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

from pathlib import Path
from typing import Protocol, runtime_checkable

from millstream.state.backends.base import NO_STATE, Backend, Entry, KeyRange, Row, StoreSize

__all__ = [
    "NO_STATE",
    "Adopting",
    "Backend",
    "BackendSupplier",
    "Entry",
    "KeyRange",
    "ReadOnly",
    "Row",
    "StoreSize",
]


@runtime_checkable
class Adopting(Protocol):
    """A supplier that need not copy a snapshot that nobody else needs. Suppliers may leave it out."""

    def adopt(self, snapshot: Path, path: Path, *, segment_bytes: int = 0) -> Backend:
        """Do what :meth:`BackendSupplier.restore` does with the snapshot's own files, and so use it up."""


@runtime_checkable
class ReadOnly(Protocol):
    """A supplier whose stores several processes may read at once. Suppliers may leave it out."""

    def open_read_only(self, path: Path, *, segment_bytes: int = 0) -> Backend:
        """Open a store that is there, and to which nobody writes meanwhile."""


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
