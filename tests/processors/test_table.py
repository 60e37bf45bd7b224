"""How tables send updates: each at once, or one per key when the epoch ends."""

from __future__ import annotations

import pytest
from tests.processors.kit import Notes, batch_of, opened, updates_of

from millstream import StoreBuilder, Window, Windowed, serdes, stores
from millstream.processors.table_source import StoredTableSource
from millstream.state.stores.factory import open_store


def cached(*, send_old: bool = True) -> tuple[StoredTableSource, Notes]:
    operator = StoredTableSource("table", caching=True, send_old=send_old)
    return operator, opened(operator)


def test_a_flush_sends_the_last_update_of_each_key() -> None:
    operator, _ = cached()
    operator.process(batch_of(("a", 1), ("b", 2), ("a", 3)))
    assert updates_of(operator.flush()) == [("b", 2, None, 1), ("a", 3, None, 2)]


def test_a_flush_is_in_the_order_of_each_keys_last_update_over_all_batches() -> None:
    operator, _ = cached()
    operator.process(batch_of(("z", 1), ("a", 1), ("m", 1)))
    operator.process(batch_of(("z", 2), ("b", 1)))
    assert [key for key, _, _, _ in updates_of(operator.flush())] == ["a", "m", "z", "b"]


def test_the_old_value_of_a_flush_is_that_of_the_last_epoch() -> None:
    operator, notes = cached()
    operator.process(batch_of(("a", 1)))
    operator.flush()
    notes.commit()
    operator.process(batch_of(("a", 2), ("a", 3)))
    assert updates_of(operator.flush()) == [("a", 3, 1, 1)]


def test_a_key_that_came_and_went_within_the_epoch_is_not_heard_of() -> None:
    operator, _ = cached()
    operator.process(batch_of(("a", 1), ("a", None)))
    assert operator.flush() is None


def test_a_key_that_was_committed_and_went_is_a_tombstone() -> None:
    operator, notes = cached()
    operator.process(batch_of(("a", 1)))
    operator.flush()
    notes.commit()
    operator.process(batch_of(("a", 2), ("a", None)))
    assert updates_of(operator.flush()) == [("a", None, 1, 1)]


def test_a_flush_carries_headers_and_origin_of_the_last_update() -> None:
    operator, _ = cached()
    headers = ((("h", b"1"),), (("h", b"2"),))
    operator.process(batch_of(("a", 1), ("a", 2), headers=headers))
    out = operator.flush()
    assert out is not None
    assert (out.headers, list(out.origins)) == ([(("h", b"2"),)], [1])


def test_a_second_flush_has_nothing_to_send() -> None:
    operator, _ = cached()
    operator.process(batch_of(("a", 1)))
    assert operator.flush() is not None
    assert operator.flush() is None


def test_a_flush_sends_no_old_values_if_nobody_wants_them() -> None:
    operator, _ = cached(send_old=False)
    operator.process(batch_of(("a", 1)))
    out = operator.flush()
    assert out is not None
    assert out.olds is None


def test_two_operators_over_one_store_flush_together() -> None:
    notes = Notes()
    one = StoredTableSource("table", caching=True, send_old=False)
    two = StoredTableSource("table", caching=True, send_old=False)
    opened(one, notes)
    opened(two, notes)
    one.process(batch_of(("a", 1), ("b", 1)))
    two.process(batch_of(("a", 2)))
    assert updates_of(one.flush()) == [("b", 1, None, 1), ("a", 2, None, 0)]
    assert two.flush() is None


@pytest.mark.parametrize(
    "spec",
    [
        stores.timestamped_window("table", window_size_ms=10, retention_ms=100),
        stores.session("table", retention_ms=100),
    ],
    ids=lambda spec: spec.kind.value,
)
@pytest.mark.parametrize("caching", [False, True])
def test_a_table_may_be_kept_by_window(spec: StoreBuilder, *, caching: bool) -> None:
    notes = Notes()
    notes.table = open_store(spec, notes.backend, serdes.string, serdes.int64)
    operator = StoredTableSource("table", caching=caching, send_old=True)
    opened(operator, notes)
    early, late = Windowed("a", Window(0, 10)), Windowed("a", Window(10, 20))
    sent = operator.process(batch_of((early, 1), (late, 2), (early, 3), timestamps=[10, 20, 10]))
    if caching:
        assert updates_of(operator.flush()) == [(late, 2, None, 20), (early, 3, None, 10)]
    else:
        assert updates_of(sent) == [(early, 1, None, 10), (late, 2, None, 20), (early, 3, 1, 10)]
    assert notes.table.load(notes.table.encode_keys([early, late])) == dict(
        zip(notes.table.encode_keys([early, late]), [(3, 10), (2, 20)], strict=True)
    )
