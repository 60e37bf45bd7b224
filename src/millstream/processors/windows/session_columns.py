"""Many rows of a cached table of sessions at once: sorted by key and time, and cut where the gap is larger.

It gives the state and the updates that `session_rows` gives, or gives up before anything has changed: if some
row may be late, if what expires on the way could matter, or if keys or values are not plain. Python sees each
session once, not each record.

- A **run** is a stretch of the batch's records of one key without a larger gap.
- Runs and stored sessions that are close enough become one session, with one number. Two runs that are too
  far from each other may both reach the same stored session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.aggregations.column_groups import FAILURES, plain_rows
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.serdes import deserialize_column
from millstream.serdes.columns import CannotError, codec_to_write, learn
from millstream.serdes.columns.primitive_codecs import big_endian
from millstream.serdes.windowed import of_record
from millstream.state.stores.session import SessionRow

if TYPE_CHECKING:
    from millstream.processors.windows.session_windows import SessionAggregation

__all__ = ["fold_in_columns"]

_NEVER: Final = -(2**62)
"""Before all times, however much is subtracted from them."""


def fold_in_columns(table: SessionAggregation, batch: Batch) -> bool:
    """Fold plain keys and values into a cached table. False if it can't: nothing has happened then."""
    form = table.aggregation.columns
    if form is None:
        return False
    try:
        found = _fold(table, form, plain_rows(form, batch, table.store, table.store.key_serde))
        values = _encoded(table, found.values)
    except FAILURES:  # row by row it fails again, and it is known where
        table.context.fell_back("columns", len(batch))
        return False
    found.save(table, values)
    found.hold_back(table, batch)
    return True


@dataclass(frozen=True, slots=True)
class _Found:
    """What came out: a session for each number, and what each of them has replaced."""

    sessions: pl.DataFrame
    """key, start, end, row"""
    values: pl.Series
    gone: pl.DataFrame
    """Stored sessions that are part of larger ones now: key, start, end, row"""
    observed: int

    def save(self, table: SessionAggregation, values: pl.Series) -> None:
        """Write the cells, and move time on."""
        keys = _cell_keys(self.sessions)
        times = big_endian(self.sessions["end"], 8)
        cells = pl.select(pl.lit(times) + pl.lit(values)).to_series()
        table.store.save_encoded(zip(keys.to_list(), cells.to_list(), strict=True))
        table.store.save_encoded((key, None) for key in _cell_keys(self.gone).to_list())
        table.store.advance(self.observed)
        table.context.times.observed = self.observed

    def hold_back(self, table: SessionAggregation, batch: Batch) -> None:
        """One update per session, in the order of their rows; what is gone goes first."""
        gone = self.gone.with_columns(value=pl.lit(None, self.values.dtype), is_made=pl.lit(value=False))
        made = self.sessions.with_columns(value=self.values, is_made=pl.lit(value=True))
        updates = pl.concat([gone, made.select(gone.columns)]).sort("row", "is_made", "end")
        changed = batch.take(Column.of_series(updates["row"]))
        keys = updates.select(
            pl.struct(pl.lit(changed.keys.series()).alias("key"), "start", "end")
        ).to_series()
        held = replace(
            changed,
            keys=Column.of_series(keys, of_record),
            values=Column.of_series(updates["value"]),
            timestamps=Column.of_series(updates["end"]),
            olds=None,
            order=None,
        )
        table.cache.hold((_cell_keys(updates).to_list(), held))


def _fold(table: SessionAggregation, form: ColumnForm, rows: pl.DataFrame) -> _Found:
    earliest, latest = int(rows["time"].min()), int(rows["time"].max())  # type: ignore[arg-type]
    records, is_in_order = _in_turn(table, rows)
    if not is_in_order and form.in_order(rows.schema["value"]):
        raise CannotError("values whose order matters, out of order")
    runs, number = _runs(table, records)
    stored = table.store.sessions_of(runs["key"].unique().to_list(), earliest - table.windows.gap_ms)
    sessions, merged = runs.select("key", "start", "end"), None
    if stored:
        number_of_run, sessions, merged = _joined(table, runs, _stored(table, stored))
        number = number_of_run.gather(number)
    frame = records.select("row", "value", "time").with_columns(key=number)
    if not is_in_order:
        frame = frame.sort("row")
    last = _folded(form, frame, _before(table, len(sessions), merged))
    values = form.values_of(last)
    if not isinstance(values, pl.Series) or values.null_count():
        raise CannotError("aggregates that are no plain column")
    sessions = sessions.with_columns(row=last["row"])
    gone = sessions.clear() if merged is None else _gone(table, sessions, merged, frame)
    return _Found(sessions, values, gone, max(table.context.times.observed, latest))


def _in_turn(table: SessionAggregation, rows: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """The rows by key and time, with what the store has seen of time before each; and if they were in order.

    Raises if some of them may be late, or if a session that one belongs to may have expired by then. Where
    rows are in order nothing is late, and the runs are cut where something has expired.
    """
    rules, observed, store_time = table.rules, table.context.times.observed, table.store.observed_time
    gap, time = rules.windows.gap_ms, rows["time"]
    latest = time.cum_max()
    seen = latest.shift(1).fill_null(store_time).clip(lower_bound=store_time)
    rows = rows.with_columns(seen=seen)
    if time.is_sorted() and time[0] >= max(observed, store_time):
        return rows.sort("key", maintain_order=True), True
    if (time < latest.clip(lower_bound=observed) - rules.open_ms).any():
        raise CannotError("rows that may be late")
    if (time - gap <= seen - rules.retention_ms).any():
        raise CannotError("rows whose sessions may have expired")
    return rows.sort("key", "time", "row"), False


def _runs(table: SessionAggregation, records: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The runs of sorted records, and the number of each record's run."""
    is_first = records.select(_is_apart(table, pl.col("time"), pl.col("time").shift(1))).to_series()
    starts = is_first.arg_true()
    ends = pl.concat([starts[1:], pl.Series([len(records)], dtype=starts.dtype)]) - 1
    runs = {
        "key": records["key"].gather(starts),
        "start": records["time"].gather(starts),
        "end": records["time"].gather(ends),
        "seen": records["seen"].gather(starts),
    }
    return pl.DataFrame(runs), is_first.cast(pl.Int64).cum_sum() - 1


def _is_apart(table: SessionAggregation, start: pl.Expr, end_before: pl.Expr) -> pl.Expr:
    """Whether something does not belong to what stands before it, in the order of keys and times."""
    apart = (
        (pl.col("key") != pl.col("key").shift(1))
        | (start - end_before > table.windows.gap_ms)
        | (end_before <= pl.col("seen") - table.rules.retention_ms)
    )
    return apart.fill_null(value=True)


def _stored(table: SessionAggregation, found: Mapping[bytes, Sequence[SessionRow]]) -> pl.DataFrame:
    """Stored sessions: key, start, end and value."""
    gap = table.windows.gap_ms
    for each in found.values():
        if len(each) > 1 and any(later[1] - earlier[0] <= gap for earlier, later in pairwise(each)):
            raise CannotError("stored sessions that a smaller gap has kept apart")
    rows = [(key, start, end, data) for key, each in found.items() for end, start, data in each]
    keys, starts, ends, data = zip(*rows, strict=True)
    values = deserialize_column(table.store.value_serde, data)
    return pl.DataFrame(
        {
            "key": pl.Series(keys, dtype=pl.Binary),
            "start": pl.Series(starts, dtype=pl.Int64),
            "end": pl.Series(ends, dtype=pl.Int64),
            "value": pl.Series(values, strict=True),
        }
    )


def _joined(
    table: SessionAggregation, runs: pl.DataFrame, stored: pl.DataFrame
) -> tuple[pl.Series, pl.DataFrame, pl.DataFrame]:
    """The number of each run's session; the sessions by number; the stored ones in them, with the number."""
    place, nothing = pl.int_range(pl.len(), dtype=pl.Int64), pl.lit(None, pl.Int64)
    both = pl.concat(
        [
            stored.select("key", "start", "end", seen=pl.lit(_NEVER, pl.Int64), run=nothing, stored=place),
            runs.select("key", "start", "end", "seen", run=place, stored=nothing),
        ]
    ).sort("key", "start", "run")
    apart = _is_apart(table, pl.col("start"), pl.col("end").cum_max().over("key").shift(1))
    both = both.with_columns(number=apart.cum_sum())
    # Stored sessions that no run has reached stay what they are.
    both = both.filter(pl.col("run").is_not_null().any().over("number"))
    both = both.with_columns(number=pl.col("number").rle_id().cast(pl.Int64))
    sessions = both.group_by("number").agg(pl.col("key").first(), pl.col("start").min(), pl.col("end").max())
    of_stored = both.filter(pl.col("stored").is_not_null())
    return (
        both.filter(pl.col("run").is_not_null()).sort("run")["number"],
        sessions.sort("number").drop("number"),
        stored[of_stored["stored"]].with_columns(of_stored["number"]),
    )


def _before(table: SessionAggregation, sessions: int, merged: pl.DataFrame | None) -> list[Any]:
    """What each session begins with: the aggregate of the stored one in it, or of several."""
    before: list[Any] = [None] * sessions
    merge = table.aggregation.merge
    assert merge is not None  # it has a column form
    for number, value in () if merged is None else merged.select("number", "value").iter_rows():
        before[number] = value if before[number] is None else merge(before[number], value)
    return before


def _folded(form: ColumnForm, frame: pl.DataFrame, values: list[Any]) -> pl.DataFrame:
    """The aggregate of each session after all of its rows, by number; `values` are those before."""
    numbers = pl.int_range(len(values), dtype=pl.Int64, eager=True)
    known = pl.Series([None if value is None else 0 for value in values], dtype=pl.Int64)
    before = pl.DataFrame(
        {"key": numbers, **form.columns_of(values, frame.schema["value"]), "time_before": known}
    )
    form.check_totals(frame, before)
    if form.in_order(frame.schema["value"]):
        return form.each(frame, before).group_by("key").last().sort("key")
    return form.last(frame, form.grouped(frame).sort("key"), before)


def _gone(
    table: SessionAggregation, sessions: pl.DataFrame, merged: pl.DataFrame, frame: pl.DataFrame
) -> pl.DataFrame:
    """The stored sessions that are longer now, each with the first row that made it so."""
    now, gap = sessions[merged["number"]], table.windows.gap_ms
    is_longer = (merged["start"] != now["start"]) | (merged["end"] != now["end"])
    gone = merged.filter(is_longer).with_row_index("one")
    rows = frame.select("row", "time", number="key").join(gone.drop("key", "value"), on="number")
    time, start, end = pl.col("time"), pl.col("start"), pl.col("end")
    reached = time.is_between(start - gap, end + gap) & ~time.is_between(start, end)
    first = rows.filter(reached).group_by("one").agg(pl.col("row").min()).sort("one")
    return gone.with_columns(first["row"]).select(sessions.columns)


def _encoded(table: SessionAggregation, values: pl.Series) -> pl.Series:
    codec = codec_to_write(table.store.value_serde, values.dtype)
    if codec is None:
        raise CannotError(f"{values.dtype} into a store of other values")
    encoded = codec.encode(values)
    learn(table.store.value_serde, values.dtype)
    return encoded


def _cell_keys(sessions: pl.DataFrame) -> pl.Series:
    """Key, end and start as bytes."""
    end, start = big_endian(sessions["end"], 8), big_endian(sessions["start"], 8)
    return sessions.select(pl.col("key") + pl.lit(end) + pl.lit(start)).to_series()
