"""`WrittenColumns`: the writes of an epoch to one store, while they stand in columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import overload

import pyarrow as pa

Entry = tuple[bytes, bytes | None]
"""A key and its new value, or None for a delete."""


class WrittenColumns(Sequence[Entry]):
    """Values for distinct keys in ascending order, none of them a delete.

    A sequence of entries like a list of them, which it makes when somebody looks; changelog rows are made
    of the columns.

    >>> list(WrittenColumns(pa.array([b"a", b"b"]), pa.array([b"1", b"2"]), pa.array([5, 6])))
    [(b'a', b'1'), (b'b', b'2')]
    """

    __slots__ = ("_entries", "key_column", "time_column", "value_column")

    def __init__(self, keys: pa.Array, values: pa.Array, timestamps: pa.Array) -> None:
        self.key_column = keys
        self.value_column = values
        self.time_column = timestamps
        """The times of the values; null for one that has none."""
        self._entries: list[Entry] | None = None

    def entries(self) -> list[Entry]:
        """The writes one by one."""
        if self._entries is None:
            self._entries = list(zip(self.key_column.to_pylist(), self.value_column.to_pylist(), strict=True))
        return self._entries

    def behind(self, key: bytes, first: tuple[bytes, bytes]) -> WrittenColumns:
        """An entry without a time, and then all entries from a key on."""
        keys = self.key_column
        cut = bisect_left(range(len(keys)), key, key=lambda place: keys[place].as_py())
        columns = (keys, self.value_column, self.time_column)
        return WrittenColumns(
            *(
                pa.concat_arrays([pa.array([one], column.type), column[cut:]])
                for one, column in zip((*first, None), columns, strict=True)
            )
        )

    def __len__(self) -> int:
        return len(self.key_column)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries())

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        return self.entries()[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.entries() == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list
