"""Rows of a repartition that stand for several: made in front of it, known again behind it.

On such a repartition (`topology.combiner` says which these are) each value begins with a byte that says
what it is: the value of one record, or what stands for several; if that is a number of a column, its eight
bytes follow. Whether rows of a batch are combined depends on the rows; if there is any doubt, they go one by
one, and nothing is lost but time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import polars as pl

from millstream.processors.aggregations.aggregation import Aggregation, PartialAggregate
from millstream.processors.aggregations.groups import group_rows
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column, are_few
from millstream.serdes import Serde
from millstream.serdes import serialize_column as serialize
from millstream.serdes.columns.primitive_codecs import big_endian
from millstream.task.column_codec import encoded

__all__ = ["combined_rows", "decode_marked", "mark_single"]

_SINGLE, _COMBINED, _NUMBER = b"\x00", b"\x01", b"\x02"
_NUMBER_BYTES = 9
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def combined_rows(
    batch: Batch, key_serde: Serde[Any], value_serde: Serde[Any], aggregation: Aggregation
) -> tuple[Batch, Column] | None:
    """The last row of each key, and the marked values that stand for all of its rows.

    None if the rows have to go one by one: values are missing or can't be written, timestamps go back (rows
    would be merged in another order behind the repartition), or keys or values are of the wrong types.
    """
    if len(batch) == 0 or None in batch.values or not batch.timestamps.is_sorted():
        return None
    try:
        _write(value_serde, batch.values)  # what can't be written must fail here, as it would without us
        groups = group_rows(batch, key_serde, aggregation)
        if groups is None:
            return None
        return batch.take(groups.rows), _marked(groups.combined)
    except Exception:  # noqa: BLE001 - one by one it fails again, and then it is known where
        return None


def mark_single(values: Sequence[bytes | None]) -> Column:
    """Values of single records, marked as such."""
    return Column([None if value is None else _SINGLE + value for value in values])


def decode_marked(column: Column, single: Callable[[list[bytes | None]], list[Any]]) -> Column:
    """Values, and `PartialAggregate` for those that stand for several. `single` decodes the former."""
    if column.in_arrow and not are_few(len(column)) and (numbers := _numbers(column)) is not None:
        return numbers
    whole = [data is not None and data[:1] != _SINGLE for data in column]
    if all(whole):
        return Column([_combined(data) for data in column if data is not None])
    values = single(
        [None if data is None or is_whole else data[1:] for data, is_whole in zip(column, whole, strict=True)]
    )
    return Column(
        [
            _combined(data) if is_whole and data is not None else value
            for data, is_whole, value in zip(column, whole, values, strict=True)
        ]
    )


def _combined(data: bytes) -> PartialAggregate:
    return PartialAggregate(
        int.from_bytes(data[1:], signed=True) if data[:1] == _NUMBER else _decode(data[1:])
    )


def _marked(combined: Column) -> Column:
    if not combined.in_arrow:
        return Column([_COMBINED + _encode(value) for value in combined])
    numbers = big_endian(combined.series(), _NUMBER_BYTES - 1)
    return Column.of_series(pl.select(pl.lit(_NUMBER) + pl.lit(numbers)).to_series())


def _numbers(column: Column) -> Column | None:
    """Numbers that stand for several values, if there is nothing else."""
    data = column.series()
    if data.null_count() or not (data.bin.starts_with(_NUMBER) & (data.bin.size() == _NUMBER_BYTES)).all():
        return None
    numbers = data.bin.slice(1).bin.reinterpret(dtype=pl.Int64, endianness="big")
    return Column.of_series(numbers, PartialAggregate)


def _write(serde: Serde[Any], values: Column) -> None:
    values = values.packed()
    if not values.in_arrow or encoded(serde, values) is None:
        serialize(serde, values)
