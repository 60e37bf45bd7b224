"""The partners of many rows at once: what `partners_in_rows` finds, with a few sorts and searches.

Keys get numbers, so that key and time together are one number. In the rows of the other side, sorted by it,
the partners of a row lie side by side. Those that came after the row are left out, and so are those that had
expired when it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.processors.joins.windows_of_keys import EncodedRows, KeyRows, SideRows

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["Partners", "partners_in_columns"]

_LARGEST: Final = 2**62


@dataclass(frozen=True, slots=True)
class Partners:
    """Parallel columns, one entry per row and partner, in the order of rows, then of the partners' times."""

    rows: list[int]
    """The rows of the batch that have found a partner."""
    times: list[int]
    """The partners' times."""
    values: list[Any]
    """Their values, as they are kept."""

    def by_row(self, count: int) -> Iterator[KeyRows]:
        """The partners of each row of a batch."""
        start, total = 0, len(self.rows)
        for row in range(count):
            end = start
            while end < total and self.rows[end] == row:
                end += 1
            yield self.times[start:end], self.values[start:end]
            start = end


def partners_in_columns(
    encoded: EncodedRows,
    kept: Sequence[Any],
    sides: tuple[SideRows, SideRows],
    ranges: Sequence[tuple[int, int]],
) -> Partners | None:
    """The partners of all rows; None if keys and times are too many for numbers of 64 bits."""
    numbers: dict[bytes, int] = {}
    number = numbers.setdefault
    codes = [-1 if key is None else number(key, len(numbers)) for key in encoded.keys]
    loaded = [[number(key, len(numbers)) for key in side.keys] for side in sides]
    times = [encoded.timestamps, sides[0].times, sides[1].times]
    first, last = min(min(some) for some in times if some), max(max(some) for some in times if some)
    span = last - first + 1
    if (len(numbers) + 1) * span >= _LARGEST:
        return None
    batch = (
        pl.DataFrame(
            {"code": codes, "time": list(encoded.timestamps), "port": list(encoded.ports)},
            schema={"code": pl.Int64, "time": pl.Int64, "port": pl.Int64},
        )
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
        .filter(pl.col("code") >= 0)
    )
    found = [
        _partners_of(side, batch, loaded[1 - side], sides[1 - side], ranges[side], (first, span))
        for side in range(2)
    ]
    both = pl.concat(found).sort("row", maintain_order=True)
    values = [[*side.values, *kept] for side in sides]
    return Partners(
        both["row"].to_list(),
        both["partner_time"].to_list(),
        [
            values[1 - port][place]
            for port, place in zip(both["port"].to_list(), both["place"].to_list(), strict=True)
        ],
    )


def _partners_of(
    port: int,
    batch: pl.DataFrame,
    loaded: list[int],
    other: SideRows,
    around: tuple[int, int],
    times: tuple[int, int],
) -> pl.DataFrame:
    """The partners of the rows of one port. `loaded` are the numbers of the keys of what was stored."""
    first, span = times
    types = {"code": pl.Int64, "time": pl.Int64}
    stored = pl.DataFrame({"code": loaded, "time": other.times}, schema=types).with_columns(
        row=pl.lit(-1, pl.Int64), place=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    came = batch.filter(pl.col("port") != port).select(
        "code", "time", "row", place=pl.col("row") + len(loaded)
    )
    at = pl.col("code") * span + pl.col("time") - first
    partners = pl.concat([stored, came]).with_columns(at=at).sort("at", maintain_order=True)
    gone = pl.when(pl.col("port") != port).then("time").otherwise(-1).cum_max()
    gone = pl.max_horizontal(gone, pl.lit(other.time)) - other.store.retention_ms
    before, after = around
    asking = (
        batch.with_columns(gone=gone)
        .filter(pl.col("port") == port)
        .with_columns(
            low=pl.col("code") * span + (pl.col("time") - before - first).clip(0, span),
            high=pl.col("code") * span + ((pl.col("time") + after).clip(0) - first).clip(-1, span - 1),
        )
    )
    asking = asking.with_columns(
        low=partners["at"].search_sorted(asking["low"], side="left").cast(pl.Int64),
        high=partners["at"].search_sorted(asking["high"], side="right").cast(pl.Int64),
    ).filter(pl.col("low") < pl.col("high"))
    pairs = asking.select("row", "port", "gone", at=pl.int_ranges("low", "high")).explode("at")
    return (
        pairs.with_columns(
            partner_row=partners["row"].gather(pairs["at"]),
            partner_time=partners["time"].gather(pairs["at"]),
            place=partners["place"].gather(pairs["at"]),
        )
        .filter((pl.col("partner_row") < pl.col("row")) & (pl.col("partner_time") > pl.col("gone")))
        .select("row", "port", "partner_time", "place")
    )
