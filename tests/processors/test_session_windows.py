"""Session windows over batches: each rule by hand, and all of them against an oracle on random input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.processors.kit import Notes, batch_of, fails_on
from tests.processors.session_oracle import Sent, SessionOracle

from millstream import SessionWindows, Windowed, serdes, stores
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.mean import mean_of
from millstream.processors.aggregations.sum import sum_of
from millstream.processors.batch import Batch
from millstream.processors.windows.session_windows import SessionAggregation
from millstream.serdes import Serde
from millstream.serdes.mean_serde import MeanSerde
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import SEGMENT_BYTES, apply_changes
from millstream.state.stores.store import changes_of, epoch_committed

Input = tuple[str | None, Any, int]


class SessionNotes(Notes):
    """The context of a session operator, over a store in memory."""

    def __init__(self, retention: int, *, time_ordered: bool, value: Serde[Any]) -> None:
        super().__init__()
        self.spec = stores.session(
            "table", retention_ms=retention, segment_interval_ms=20, time_ordered=time_ordered
        )
        self.value = value
        self.backend = MemoryBackend(segment_bytes=SEGMENT_BYTES)
        self.reopen()

    def reopen(self) -> None:
        """A new task begins with what was committed."""
        self.table = open_store(self.spec, self.backend, serdes.string, self.value)

    def commit(self) -> None:
        apply_changes(self.backend, changes_of(self.table), b"1", segmented=True)
        epoch_committed(self.table)

    def stored(self) -> dict[tuple[str, int, int], Any]:
        found = self.table.find_sessions_range(None, None, 0, 10**9)
        return {(each.key, each.window.start, each.window.end): value for each, value in found}


class Sessions:
    """An operator at work."""

    def __init__(
        self,
        windows: SessionWindows,
        aggregation: Aggregation,
        merger: Any = None,
        *,
        caching: bool = False,
        send_old: bool = True,
        on_close: bool = False,
        retention: int | None = None,
        value: Serde[Any] = serdes.json,
    ) -> None:
        self.arguments = (windows, aggregation, merger or merger_of(aggregation))
        self.forms: dict[str, Any] = {"caching": caching, "send_old": send_old, "on_close": on_close}
        least = windows.gap_ms + windows.grace_ms + on_close
        self.notes = SessionNotes(
            least if retention is None else retention, time_ordered=on_close, value=value
        )
        self.sent: list[Sent] = []
        self.batches: list[Batch] = []
        self.restart()

    def restart(self) -> None:
        self.notes.reopen()
        self.operator = SessionAggregation("table", *self.arguments, **self.forms)
        self.operator.open(self.notes)

    def take(self, *rows: Input, headers: Any = None) -> list[Sent]:
        """What goes on at once."""
        pairs, times = [(key, value) for key, value, _ in rows], [time for _, _, time in rows]
        batch = batch_of(*pairs, timestamps=times, headers=headers)
        return self._note(self.operator.process(batch))

    def commit(self) -> list[Sent]:
        """What goes on at the end of the epoch."""
        sent = self._note(self.operator.flush())
        self.notes.commit()
        return sent

    def _note(self, batch: Batch | None) -> list[Sent]:
        if batch is None:
            return []
        self.batches.append(batch)
        olds = [None] * len(batch) if batch.olds is None else batch.olds
        sent = [
            (_row(key), value, old, time)
            for key, value, old, time in zip(batch.keys, batch.values, olds, batch.timestamps, strict=True)
        ]
        self.sent += sent
        return sent


def _row(key: Windowed[str]) -> tuple[str, int, int]:
    return key.key, key.window.start, key.window.end


def merger_of(aggregation: Aggregation) -> Any:
    merge = aggregation.merge
    assert merge is not None
    return lambda _, one, other: other if one is None else merge(one, other)


def counting(**options: Any) -> Sessions:
    return Sessions(SessionWindows(5), COUNT, value=serdes.int64, **options)


def test_sessions_that_a_record_joins_are_replaced_by_one_and_their_tombstones_come_first() -> None:
    counts = counting()
    assert counts.take(("k", "a", 0)) == [(("k", 0, 0), 1, None, 0)]
    assert counts.take(("k", "a", 5)) == [(("k", 0, 0), None, 1, 0), (("k", 0, 5), 2, None, 5)]
    assert counts.take(("k", "a", 20)) == [(("k", 20, 20), 1, None, 20)]
    assert counts.take(("k", "a", 5)) == []
    assert counts.take(("k", "a", 17)) == [(("k", 20, 20), None, 1, 20), (("k", 17, 20), 2, None, 20)]
    assert counts.notes.late_rows == [0]


def test_a_batch_gives_what_its_records_give_one_by_one() -> None:
    rows: list[Input] = [("k", "a", time) for time in (0, 5, 20, 5, 17)]
    one_by_one, at_once = counting(), counting()
    for row in rows:
        one_by_one.take(row)
    assert at_once.take(*rows) == one_by_one.sent
    assert at_once.notes.late_rows == [3]


def test_a_record_at_the_very_time_of_a_session_updates_it_without_a_tombstone() -> None:
    counts = counting()
    counts.take(("k", "a", 7))
    assert counts.take(("k", "b", 7)) == [(("k", 7, 7), 2, 1, 7)]
    assert counts.take(("k", "c", 7), ("k", "d", 8)) == [
        (("k", 7, 7), 3, 2, 7),
        (("k", 7, 7), None, 3, 7),
        (("k", 7, 8), 4, None, 8),
    ]


def test_a_record_inside_a_session_gives_a_tombstone_and_a_value_for_the_same_window() -> None:
    counts = counting()
    counts.take(("k", "a", 0), ("k", "a", 4))
    assert counts.take(("k", "b", 2)) == [(("k", 0, 4), None, 2, 4), (("k", 0, 4), 3, None, 4)]


@pytest.mark.parametrize(("time", "sessions"), [(5, {("k", 0, 5): 2}), (6, {("k", 0, 0): 1, ("k", 6, 6): 1})])
def test_a_gap_belongs_to_the_session_and_one_millisecond_more_does_not(time: int, sessions: Any) -> None:
    counts = counting(retention=100)
    counts.take(("k", "a", 0), ("k", "b", time))
    assert counts.notes.stored() == sessions


@pytest.mark.parametrize(("time", "late"), [(12, []), (11, [0])])
def test_a_record_is_late_when_gap_and_grace_are_over(time: int, late: list[int]) -> None:
    sessions = Sessions(SessionWindows(5, grace=3), COUNT, value=serdes.int64)
    sessions.take(("k", "a", 20))
    sessions.take(("other", "a", time))
    assert sessions.notes.late_rows == late


def test_a_late_record_that_reaches_a_session_that_is_open_is_accepted() -> None:
    counts = counting(retention=100)
    counts.take(("k", "a", 0), ("k", "a", 4), ("k", "a", 8), ("other", "a", 13))
    assert counts.take(("k", "a", 3)) == [(("k", 0, 8), None, 3, 8), (("k", 0, 8), 4, None, 8)]


@pytest.mark.parametrize(("retention", "sessions"), [(5, [("k", 17, 17)]), (6, [("k", 15, 17)])])
def test_a_session_that_is_past_the_retention_is_not_seen(retention: int, sessions: list[Any]) -> None:
    counts = counting(retention=retention)
    counts.take(("k", "a", 15), ("other", "a", 20))
    assert [row for row, new, _, _ in counts.take(("k", "a", 17)) if new is not None] == sessions


def test_null_keys_are_dropped_and_do_not_move_time_and_null_values_are_aggregated() -> None:
    counts = counting()
    assert counts.take((None, "a", 100), ("k", None, 0)) == [(("k", 0, 0), 1, None, 0)]
    assert (counts.notes.drops, counts.notes.late_rows, counts.notes.times.observed) == (1, [], 0)


def test_an_aggregation_that_has_no_use_for_null_values_drops_them() -> None:
    sums = Sessions(SessionWindows(5), sum_of(None))
    assert sums.take(("k", None, 0), ("k", 2, 1)) == [(("k", 1, 1), 2, None, 1)]
    assert sums.notes.drops == 1


def test_results_have_no_headers_without_caching_and_those_of_the_last_update_with_it() -> None:
    headers = [(("n", b"1"),), (("n", b"2"),)]
    plain, cached = counting(), counting(caching=True)
    plain.take(("k", "a", 0), ("k", "b", 1), headers=headers)
    cached.take(("k", "a", 0), ("k", "b", 1), headers=headers)
    cached.commit()
    assert plain.batches[0].headers is None
    assert list(cached.batches[0].headers or ()) == [headers[1]]


def test_with_caching_a_session_is_heard_of_once_and_one_that_came_and_went_is_not() -> None:
    counts = counting(caching=True)
    assert counts.take(("k", "a", 0), ("k", "a", 5), ("l", "a", 5)) == []
    assert counts.commit() == [(("k", 0, 5), 2, None, 5), (("l", 5, 5), 1, None, 5)]


def test_with_caching_a_committed_session_that_was_merged_away_sends_its_tombstone() -> None:
    counts = counting(caching=True)
    counts.take(("k", "a", 0))
    counts.commit()
    counts.take(("k", "a", 3))
    counts.take(("k", "a", 4))
    assert counts.commit() == [(("k", 0, 0), None, 1, 0), (("k", 0, 4), 3, None, 4)]


def test_without_old_values_none_are_sent() -> None:
    for caching in (False, True):
        counts = counting(caching=caching, send_old=False)
        counts.take(("k", "a", 0))
        counts.commit()
        counts.take(("k", "a", 1))
        counts.commit()
        assert [batch.olds for batch in counts.batches] == [None, None]
        assert counts.sent[1:] == [(("k", 0, 0), None, None, 0), (("k", 0, 1), 2, None, 1)]


def test_a_mean_is_shown_as_a_number_and_merged_by_its_total_and_count() -> None:
    means = Sessions(SessionWindows(5), mean_of(None), value=MeanSerde(), retention=100)
    sent = means.take(("k", 1, 0), ("k", 2, 10), ("k", 6, 5))
    assert sent[-1] == (("k", 0, 10), 3.0, None, 10)


def test_a_row_that_fails_leaves_the_sessions_as_they_were() -> None:
    def joined(key: str, value: str, so_far: str) -> str:
        return str(fails_on("x", so_far + value)(value))

    texts = Sessions(SessionWindows(5), aggregate_by(str, joined), lambda _, one, other: one + other)
    sent = texts.take(("k", "a", 0), ("k", "x", 1), ("k", "b", 2))
    assert sent[-1] == (("k", 0, 2), "ab", None, 2)
    assert texts.notes.messages == [(1, "can't do x")]


def test_a_value_that_can_not_be_kept_fails_its_row_alone() -> None:
    sums = Sessions(SessionWindows(5), sum_of(None), value=serdes.int64)
    sent = sums.take(("k", 1, 0), ("k", 2**63, 1), ("l", 5, 1), ("k", 2, 2))
    assert [(row, new) for row, new, _, _ in sent if new is not None] == [
        (("k", 0, 0), 1),
        (("l", 1, 1), 5),
        (("k", 0, 2), 3),
    ]
    assert [row for row, _ in sums.notes.failures] == [1]


def test_an_aggregate_of_none_deletes_the_session() -> None:
    def until_stop(key: str, value: str, so_far: str) -> str | None:
        return None if value == "stop" else so_far + value

    texts = Sessions(SessionWindows(5), aggregate_by(str, until_stop), lambda _, one, other: one + other)
    sent = texts.take(("k", "a", 0), ("k", "stop", 2), ("k", "b", 3))
    gone = [(row, new) for row, new, _, _ in sent[1:]]
    assert gone == [(("k", 0, 0), None), (("k", 0, 2), None), (("k", 3, 3), "b")]


def test_an_aggregator_gets_what_the_merger_made_even_if_it_is_none() -> None:
    aggregation = aggregate_by(lambda: 100, lambda _key, value, so_far: (so_far or 0) + value)
    sessions = Sessions(SessionWindows(5), aggregation, lambda _key, _one, _other: None)
    assert sessions.take(("k", 1, 0)) == [(("k", 0, 0), 101, None, 0)]
    assert sessions.take(("k", 2, 3)) == [(("k", 0, 0), None, 101, 0), (("k", 0, 3), 2, None, 3)]


def test_what_was_sent_does_not_change_when_the_aggregator_changes_its_list_in_place() -> None:
    def append(key: str, value: int, so_far: list[int]) -> list[int]:
        so_far.append(value)
        return so_far

    def extend(key: str, one: list[int], other: list[int]) -> list[int]:
        one.extend(other)
        return one

    lists = Sessions(SessionWindows(5), aggregate_by(list, append), extend)
    sent = lists.take(("k", 1, 0), ("k", 2, 1))
    assert sent == [(("k", 0, 0), [1], None, 0), (("k", 0, 0), None, [1], 0), (("k", 0, 1), [1, 2], None, 1)]


def test_on_close_a_session_is_emitted_once_by_time_with_the_headers_of_the_record_that_closed_it() -> None:
    counts = counting(on_close=True)
    assert counts.take(("k", "a", 0), ("l", "a", 1), ("k", "a", 3)) == []
    assert counts.take(("m", "a", 5), ("m", "a", 6)) == []
    headers = [(("n", b"9"),)]
    sent = counts.take(("m", "a", 9), headers=headers)
    assert sent == [(("l", 1, 1), 1, None, 1), (("k", 0, 3), 2, None, 3)]
    assert list(counts.batches[-1].headers or ()) == headers * 2
    assert counts.take(("m", "a", 10)) == []


def test_on_close_no_session_is_lost_after_a_jump_of_time() -> None:
    counts = counting(on_close=True)
    counts.take(("k", "a", 0), ("l", "a", 1))
    counts.commit()
    assert counts.take(("m", "a", 10_000)) == [(("k", 0, 0), 1, None, 0), (("l", 1, 1), 1, None, 1)]


def test_on_close_nothing_is_emitted_twice_after_a_restart() -> None:
    counts = counting(on_close=True, retention=1000)
    counts.take(("k", "a", 0), ("l", "a", 10))
    counts.commit()
    counts.restart()
    assert counts.take(("l", "a", 11)) == []
    assert counts.take(("m", "a", 20)) == [(("l", 10, 11), 2, None, 11)]


def concatenated(key: str, one: str, other: str) -> str:
    return one + other


def collected(key: str, value: str | None, so_far: str) -> str | None:
    if value == "x":
        return None
    return so_far + (value or "-")


inputs = st.lists(
    st.tuples(
        st.sampled_from(["a", "a", "a", "b", "b\0", None]),
        st.sampled_from(["1", "2", "3", None, "x"]),
        st.integers(0, 60),
    ),
    max_size=40,
)
drifting = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", None, "x"]), st.integers(-8, 9)),
    max_size=40,
).map(lambda rows: [(key, value, max(0, 2 * n + jump)) for n, (key, value, jump) in enumerate(rows)])


@settings(max_examples=400, deadline=None)
@given(
    rows=inputs | drifting,
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    epoch=st.integers(1, 4),
    gap=st.integers(1, 12),
    grace=st.sampled_from([0, 1, 5, 30]),
    spare=st.sampled_from([0, 1, 7, 100]),
    mode=st.sampled_from(["plain", "cached", "on close"]),
    restarts=st.booleans(),
)
@example([("a", "1", 0), ("a", "x", 2), ("a", "2", 0), ("a", "x", 0)], [1], 4, 5, 0, 0, "cached", False)
def test_any_input_in_any_batches_gives_what_the_oracle_gives(
    rows: Sequence[Input],
    sizes: list[int],
    epoch: int,
    gap: int,
    grace: int,
    spare: int,
    mode: str,
    restarts: bool,
) -> None:
    forms: dict[str, Any] = {"caching": mode == "cached", "on_close": mode == "on close"}
    retention = gap + grace + spare + forms["on_close"]
    oracle = SessionOracle(gap, grace, retention, str, collected, concatenated, **forms)
    sessions = Sessions(
        SessionWindows(gap, grace=grace),
        aggregate_by(str, collected),
        concatenated,
        retention=retention,
        **forms,
    )
    taken = batches = 0
    while taken < len(rows):
        size = sizes[batches % len(sizes)]
        some = rows[taken : taken + size]
        sessions.take(*some)
        for row in some:
            oracle.take(*row)
        taken, batches = taken + size, batches + 1
        if batches % epoch == 0:
            sessions.commit()
            oracle.commit()
            if restarts:
                sessions.restart()
        assert sessions.sent == oracle.sent
        assert sessions.notes.stored() == oracle.visible()
    assert (len(sessions.notes.late_rows), sessions.notes.failures) == (oracle.late, [])
