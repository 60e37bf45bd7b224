"""`CellStore`: how operators read and write the store of a table, be it by key, by window or by session.

A **cell** is what a table has for a key: a value and its timestamp. A cell's key is bytes: those of the key
itself, or of key and window as the windowed serdes write them (`serdes.time_windowed`,
`serdes.session_windowed`). All calls are in bulk, with one read or one write of the backend. In bytes a cell
is its timestamp (8, big endian) and then the value's own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde, deserialize_column, serialize_column
from millstream.state.stores.overlay import Entry
from millstream.state.stores.store import StateStore
from millstream.state.stores.written_columns import WrittenColumns

K = TypeVar("K")

Cell: TypeAlias = tuple[Any, int] | None
"""A value and its timestamp, or nothing."""

_TIMESTAMP: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Frozen:
    """A value that stays bytes until somebody reads it, and is decoded anew for each reader.

    A user's function may change a list or an object in place. One record at a time, every read of a store
    gives a fresh object; a batch keeps values in a dictionary, so it keeps such values as bytes.
    """

    data: bytes


class CellStore(StateStore[K]):
    """A store of cells. Where a cell's key is not the key of its row, a subclass translates.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> lists = open_store(stores.timestamped_key_value("lists"), MemoryBackend(), serdes.string, serdes.json)
    >>> lists.encode_keys(["a", "b"])
    [b'a', b'b']
    >>> lists.save({b"a": ([1], 5), b"b": None})
    >>> lists.load([b"a", b"b", b"a"])
    {b'a': ([1], 5), b'b': None}
    >>> lists.load_frozen([b"a"])
    {b'a': (Frozen(data=b'[1]'), 5)}
    >>> lists.load_committed([b"a"])
    {b'a': None}
    >>> lists.thawed(lists.frozen([1]))
    [1]
    """

    has_versions: ClassVar[bool] = False
    """Whether what a cell was before it was written is kept, too."""

    def deleted(self, timestamp: int) -> Cell:
        """What is written in place of a cell to delete it."""
        del timestamp
        return None

    @property
    def cell_key_serde(self) -> Serde[Any]:
        """From the keys of the table to the keys of its cells."""
        return self.key_serde

    def encode_keys(self, keys: Sequence[Any]) -> list[bytes]:
        """The cell keys of a column of the table's keys, none of them None."""
        return serialize_column(self.cell_key_serde, keys)  # type: ignore[return-value]

    def load(self, keys: Iterable[bytes]) -> dict[bytes, Cell]:
        """The cell of each distinct key, as of now."""
        return self._cells(self._read(keys))

    def load_frozen(self, keys: Iterable[bytes]) -> dict[bytes, Cell]:
        """Like `load`, but what a user's function might change in place stays bytes: see `Frozen`."""
        return self._frozen(self._read(keys))

    def as_of_now(self, keys: Iterable[bytes]) -> Callable[[Iterable[bytes]], Mapping[bytes, Cell]]:
        """What `load_frozen` would give for these keys now, for some of them, later.

        Where it can be done, nothing is read before it is asked for.
        """
        cells = self.load_frozen(keys)
        return lambda wanted: {key: cells[key] for key in wanted}

    def load_committed(self, keys: Iterable[bytes]) -> dict[bytes, Cell]:
        """The cell of each distinct key, as of the end of the last epoch."""
        return self._cells(self._read_committed(keys))

    def load_committed_frozen(self, keys: Iterable[bytes]) -> dict[bytes, Cell]:
        """Like `load_committed`, but what a user's function might change in place stays bytes."""
        return self._frozen(self._read_committed(keys))

    def load_encoded(self, keys: list[bytes]) -> list[bytes | None]:
        """The cells of distinct keys in ascending order, in the same order, as they are stored."""
        return self.overlay.get_ascending(keys)

    def save(self, cells: Mapping[bytes, Cell]) -> None:
        """Write cells, in the order given; None deletes."""
        present = [cell for cell in cells.values() if cell is not None]
        encoded = self._encoded([cell[0] for cell in present])
        times = map(_TIMESTAMP.pack, [cell[1] for cell in present])
        data = map(bytes.__add__, times, encoded)
        if len(present) == len(cells):
            self._write(zip(cells, data, strict=True))
        else:
            self._write([(key, None if cell is None else next(data)) for key, cell in cells.items()])

    def save_encoded(self, cells: Iterable[Entry]) -> None:
        """Write cells that are encoded already, in the order given; None deletes."""
        self._write(cells)

    def save_columns(self, written: WrittenColumns) -> None:
        """Write cells that are encoded already, in the order of their keys."""
        self.overlay.put_columns(written)

    @property
    def exact_types(self) -> frozenset[type]:
        """Types whose values a cell keeps as they are."""
        exact: frozenset[type] = getattr(self.value_serde, "exact_types", frozenset())
        return exact

    def keeps(self, values: Sequence[Any]) -> bool:
        """Whether `frozen` would give back all of these values as they are."""
        return set(map(type, values)) <= {*self.exact_types, type(None), Frozen}

    def frozen(self, value: Any) -> Any:
        """A value as a cell keeps it: itself, if nobody can change it and bytes give it back; or bytes."""
        kind = type(value)
        if kind in self.exact_types or value is None or kind is Frozen:
            return value
        return Frozen(self._value_bytes(value))

    def thawed(self, frozen: Any) -> Any:
        """What a reader of a cell gets: an object that nobody else holds."""
        return self.value_serde.deserialize(frozen.data) if type(frozen) is Frozen else frozen

    def encode_value(self, value: Any) -> bytes:
        """The bytes of a value, frozen or not."""
        return value.data if type(value) is Frozen else self._value_bytes(value)

    def _read(self, keys: Iterable[bytes]) -> Mapping[bytes, bytes | None]:
        """Encoded cells as of now."""
        return self.overlay.get_many(keys)

    def _read_committed(self, keys: Iterable[bytes]) -> Mapping[bytes, bytes | None]:
        """Encoded cells as of the end of the last epoch."""
        ordered = sorted(set(keys))
        return dict(zip(ordered, self.overlay.committed.get_many(ordered), strict=True))

    def _write(self, cells: Iterable[Entry]) -> None:
        """Write encoded cells; None deletes."""
        self.overlay.put_many(cells)

    def _encoded(self, values: Sequence[Any]) -> list[bytes]:
        if Frozen not in set(map(type, values)):
            return serialize_column(self.value_serde, values)  # type: ignore[return-value]
        return [self.encode_value(value) for value in values]

    def _frozen(self, found: Mapping[bytes, bytes | None]) -> dict[bytes, Cell]:
        """Cells that nobody can change, from encoded ones."""
        if self.exact_types:
            return self._cells(found)
        cells = iter(self._frozen_cells([data for data in found.values() if data is not None]))
        return {key: None if data is None else next(cells) for key, data in found.items()}

    def _frozen_cells(self, encoded: Sequence[bytes]) -> list[tuple[Any, int]]:
        """Cells whose values nobody can change."""
        bodies = [data[8:] for data in encoded]
        values = deserialize_column(self.value_serde, bodies) if self.exact_types else map(Frozen, bodies)
        unpack = _TIMESTAMP.unpack_from
        return list(zip(values, [unpack(data)[0] for data in encoded], strict=True))

    def _cells(self, found: Mapping[bytes, bytes | None]) -> dict[bytes, Cell]:
        present = [data for data in found.values() if data is not None]
        values = deserialize_column(self.value_serde, [data[8:] for data in present])
        unpack = _TIMESTAMP.unpack_from
        pairs = zip(values, [unpack(data)[0] for data in present], strict=True)
        if len(present) == len(found):
            return dict(zip(found, pairs, strict=True))
        return {key: None if data is None else next(pairs) for key, data in found.items()}


class TimestampedStore(StateStore[K]):
    """A store that keeps a cell for a value: its single values are `ValueAndTimestamp`."""

    def _encode(self, value: ValueAndTimestamp[Any] | None) -> bytes | None:
        if value is None:
            return None
        return _TIMESTAMP.pack(value.timestamp) + self._value_bytes(value.value)

    def _decode(self, data: bytes) -> ValueAndTimestamp[Any]:
        return ValueAndTimestamp(self.value_serde.deserialize(data[8:]), _TIMESTAMP.unpack_from(data)[0])
