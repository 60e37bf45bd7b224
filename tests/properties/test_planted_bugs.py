"""Can the property tests fail? Each test plants a bug in the engine and expects the seeds to find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.properties import spec as s
from tests.properties.check import PROPERTIES, outcome
from tests.properties.conftest import FIRST_SEED, TOPOLOGIES
from tests.properties.generate import random_spec
from tests.properties.inputs import random_epochs

from millstream.processors import batch as batches
from millstream.processors import record_cache
from millstream.processors import table as tables
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.joins import grace, table_table, table_view
from millstream.processors.joins.stream_stream import StreamStreamJoin
from millstream.processors.joins.stream_table import StreamTableJoin
from millstream.processors.joins.unmatched import Unmatched
from millstream.processors.joins.windows_of_keys import SideRows
from millstream.processors.stateless import DropNullKeys
from millstream.processors.table_group import TableGroupBy
from millstream.processors.windows import time_windows
from millstream.processors.windows.expansion import Expansion, expand
from millstream.processors.windows.on_close import CloseRule
from millstream.processors.windows.sliding_windows import _SlidingRows
from millstream.state.stores.key_value import TimestampedKeyValueStore
from millstream.task import inputs, outputs, pipeline
from millstream.task.context import ForwardingContext, TransformerContext
from millstream.task.punctuation import Punctuations
from millstream.task.task import Task
from millstream.topology import plan
from millstream.topology.execution_units import units_of

SEEDS = range(FIRST_SEED, FIRST_SEED + TOPOLOGIES)


def first_finding(operators: tuple[type[s.Op], ...] = ()) -> tuple[int, str] | None:
    """The first seed for which a property does not hold, and what it says.

    Of a bug in some operators, only topologies that have one of them can tell.
    """
    for seed in SEEDS:
        spec = random_spec(seed)
        if operators and not any(isinstance(op, operators) for op in spec.ops):
            continue
        epochs = random_epochs(spec)
        for holds in PROPERTIES:
            if (found := outcome(holds, spec, epochs)) is not None:
                return seed, found
    return None


Patch = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[str, tuple[Patch, tuple[type[s.Op], ...]]] = {}


def bug(plant: Patch) -> Patch:
    BUGS[plant.__name__] = (plant, ())
    return plant


def bug_in(*operators: type[s.Op]) -> Callable[[Patch], Patch]:
    def planted(plant: Patch) -> Patch:
        BUGS[plant.__name__] = (plant, operators)
        return plant

    return planted


@bug
def parents_are_not_interleaved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pipeline, "interleave", batches.concatenate)


@bug
def sinks_of_one_topic_are_not_interleaved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outputs, "merge_sorted", lambda *runs: [row for run in runs for row in run])


@bug
def nodes_that_share_a_store_do_not_take_turns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "units_of", lambda children, _shared: units_of(children, []))


@bug
def batches_run_past_punctuators(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Task, "_end_of_batch", lambda _self, _start, end: end)


@bug
def partitions_are_taken_one_after_the_other(patch: pytest.MonkeyPatch) -> None:
    def one_after_the_other(parts: Sequence[Any]) -> list[int]:
        return list(range(sum(len(decoded.rows) for decoded in parts)))

    patch.setattr(inputs, "_merge_order", one_after_the_other)


@bug
def stream_time_is_that_of_the_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Task, "stream_time", lambda self, _origin: self._stream_time)


@bug
def metadata_is_that_of_the_first_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TransformerContext, "_origin", lambda self: -1 if self._batch is None else self._batch.origins[0]
    )


@bug
def caches_flush_in_the_order_of_keys(patch: pytest.MonkeyPatch) -> None:
    def by_key(keys: Sequence[bytes]) -> list[int]:
        return sorted(range(len(keys)), key=keys.__getitem__)

    with_pending_updates_in_order(patch, by_key)


@bug_in(s.WindowedAggregate, s.WindowedCogroup)
def windows_close_for_a_batch_as_a_whole(patch: pytest.MonkeyPatch) -> None:
    def at_the_end(timestamps: Column, windows: Any, observed: int) -> Expansion:
        return expand(timestamps, windows, timestamps.largest(observed))

    patch.setattr(time_windows, "expand", at_the_end)


@bug_in(s.WindowedAggregate, s.WindowedCogroup)
def windows_are_never_emitted_on_close(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CloseRule, "closed_starts", lambda *_: None)


@bug_in(s.WindowedAggregate, s.WindowedCogroup)
def windows_behind_a_record_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_SlidingRows, "_begin_behind", lambda *_: None)


@bug
def caches_flush_in_the_order_of_first_updates(patch: pytest.MonkeyPatch) -> None:
    last_of_each = record_cache.last_of_each

    def without_moving(pending_updates: Any) -> tuple[list[bytes], Batch]:
        keys, batch = last_of_each(pending_updates)
        first = list(dict.fromkeys(key for data, _ in pending_updates for key in data))
        return first, batch.take([keys.index(key) for key in first])

    patch.setattr(tables, "last_of_each", without_moving)


@bug
def old_values_of_a_flush_are_those_of_now(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimestampedKeyValueStore, "load_committed", TimestampedKeyValueStore.load)


@bug
def keys_that_came_and_went_are_flushed(patch: pytest.MonkeyPatch) -> None:
    load = TimestampedKeyValueStore.load_committed

    def never_empty(self: Any, keys: Any) -> dict[bytes, Any]:
        return {key: cell or (None, 0) for key, cell in load(self, keys).items()}

    patch.setattr(TimestampedKeyValueStore, "load_committed", never_empty)


@bug
def aggregates_are_read_as_of_the_last_commit(patch: pytest.MonkeyPatch) -> None:
    for load in ("load", "load_frozen"):
        patch.setattr(TimestampedKeyValueStore, load, TimestampedKeyValueStore.load_committed)


@bug
def aggregates_take_the_time_of_the_record(patch: pytest.MonkeyPatch) -> None:
    def timeless(load: Callable[..., dict[bytes, Any]]) -> Callable[..., dict[bytes, Any]]:
        return lambda self, keys: {key: cell and (cell[0], 0) for key, cell in load(self, keys).items()}

    for name in ("load", "load_frozen"):
        patch.setattr(TimestampedKeyValueStore, name, timeless(getattr(TimestampedKeyValueStore, name)))


@bug
def results_are_shared_with_the_table(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimestampedKeyValueStore, "frozen", lambda _self, value: value)


@bug
def groups_are_joined_before_they_are_left(patch: pytest.MonkeyPatch) -> None:
    regroup = TableGroupBy._regroup
    patch.setattr(TableGroupBy, "_regroup", lambda self, *update: regroup(self, *update)[::-1])


@bug
def null_keys_are_repartitioned(patch: pytest.MonkeyPatch) -> None:
    def with_empty_keys(_self: Any, batch: Batch) -> Batch:
        return replace(batch, keys=Column(["" if key is None else key for key in batch.keys]))

    patch.setattr(DropNullKeys, "process", with_empty_keys)


@bug_in(s.Process)
def a_named_child_gets_what_all_get(patch: pytest.MonkeyPatch) -> None:
    send = ForwardingContext._send
    patch.setattr(ForwardingContext, "_send", lambda self, record, _child: send(self, record, None))


@bug
def punctuators_are_forgotten_by_a_new_task(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Punctuations, "remember", lambda _self: {})


@bug
def later_rows_overtake_fanned_out_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        batches, "_numbered", lambda order, parents: [order[parent] for parent in reversed(parents)]
    )


@bug
def headers_are_lost_where_rows_are_taken(patch: pytest.MonkeyPatch) -> None:
    take = Batch.take
    patch.setattr(Batch, "take", lambda self, rows: replace(take(self, rows), headers=None))


@bug_in(s.StreamTableJoin, s.TableJoin)
def tables_are_looked_up_as_of_the_batch(patch: pytest.MonkeyPatch) -> None:
    def of_now(self: Any, keys: Any, _orders: Any, _times: Any) -> list[Any]:
        found = self._store.load_frozen({key for key in keys if key is not None})
        return [None if key is None else found[key] for key in keys]

    patch.setattr(table_view._StoreReader, "_cells", of_now)


@bug_in(s.StreamJoin)
def partners_are_seen_after_they_have_expired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SideRows, "gone_until", property(lambda _self: -1))


@bug_in(s.StreamJoin)
def partners_of_one_batch_do_not_see_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SideRows, "put", lambda *_: None)


@bug_in(s.StreamJoin)
def those_that_found_a_partner_leave_alone_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unmatched, "matched", lambda *_: None)


@bug_in(s.StreamJoin)
def those_that_wait_are_forgotten_with_the_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unmatched, "save", lambda _self: None)


@bug_in(s.StreamJoin)
def both_sides_wait_equally_long(patch: pytest.MonkeyPatch) -> None:
    opened = StreamStreamJoin.open

    def with_longer_waits(self: Any, context: Any) -> None:
        opened(self, context)
        self.waits = (max(self.waits), max(self.waits))

    patch.setattr(StreamStreamJoin, "open", with_longer_waits)


@bug_in(s.VersionedTable)
def what_waits_for_its_grace_leaves_in_the_order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grace, "heappush", lambda rows, row: rows.append(row))
    patch.setattr(grace, "heappop", lambda rows: rows.pop(0))


@bug_in(s.TableJoin)
def rows_that_were_never_there_are_deleted_from_joined_tables(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(table_table._Joining, "_is_worth_telling", lambda *_, of_left: True)


@bug_in(s.GlobalTableJoin)
def global_tables_are_looked_up_by_the_key_of_the_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamTableJoin, "_mapped_keys", lambda _self, batch, _key_of: (list(batch.keys), batch))


def with_pending_updates_in_order(
    patch: pytest.MonkeyPatch, order: Callable[[Sequence[bytes]], list[int]]
) -> None:
    """Change the order in which cached tables flush."""
    last_of_each = record_cache.last_of_each

    def changed(pending_updates: Any) -> tuple[list[bytes], Batch]:
        keys, batch = last_of_each(pending_updates)
        rows = order(keys)
        return [keys[row] for row in rows], batch.take(rows)

    patch.setattr(tables, "last_of_each", changed)


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, operators = BUGS[name]
    plant(monkeypatch)
    finding = first_finding(operators)
    assert finding is not None
    print(f"found by seed {finding[0]}")
    assert finding[1].startswith("differing")


def test_without_a_planted_bug_nothing_is_found() -> None:
    spec = random_spec(FIRST_SEED)
    assert [outcome(holds, spec, random_epochs(spec)) for holds in PROPERTIES] == [None] * len(PROPERTIES)
