"""Batches: columns that stay together, and rows that keep their order when edges meet."""

from __future__ import annotations

import pytest
from tests.processors.kit import batch_of, pairs_of

from millstream.processors.batch import Batch, concatenate, interleave


def test_take_keeps_all_columns_of_the_rows_together() -> None:
    headers = ((("h", b"0"),), (), (("h", b"2"),))
    batch = batch_of(("a", 1), ("b", 2), ("c", 3), headers=headers, olds=[10, 20, 30])
    taken = batch.take([2, 0])
    assert taken == Batch(
        keys=["c", "a"],
        values=[3, 1],
        timestamps=[2, 0],
        headers=[(("h", b"2"),), (("h", b"0"),)],
        origins=[2, 0],
        olds=[30, 10],
        order=[(2,), (0,)],
    )


def test_headers_of_a_batch_without_headers_are_empty() -> None:
    assert batch_of(("a", 1)).headers_of(0) == ()


@pytest.mark.parametrize("change", ["with_values", "with_columns"])
def test_new_values_have_no_old_ones(change: str) -> None:
    batch = batch_of(("a", 1), olds=[5])
    changed = batch.with_values([2]) if change == "with_values" else batch.with_columns(["b"], [2])
    assert changed.olds is None


def test_expanded_rows_carry_time_headers_and_origin_of_the_row_that_caused_them() -> None:
    headers = ((("h", b"0"),), (("h", b"1"),))
    batch = batch_of(("a", 1), ("b", 2), timestamps=[7, 8], headers=headers)
    expanded = batch.expand([0, 1, 1], ["x", "y", "z"], [1, 2, 3])
    assert expanded.timestamps == [7, 8, 8]
    assert expanded.origins == [0, 1, 1]
    assert expanded.headers == [headers[0], headers[1], headers[1]]


def test_expanded_rows_are_numbered_within_the_row_that_caused_them() -> None:
    expanded = batch_of(("a", 1), ("b", 2)).expand([0, 0, 1], ["x", "y", "z"], [1, 2, 3])
    assert expanded.order == [(0, 0), (0, 1), (1, 0)]


def test_edges_to_several_children_are_told_apart() -> None:
    batch = batch_of(("a", 1), ("b", 2))
    assert batch.for_child(1).order == [(0, 1), (1, 1)]


def test_without_order_an_edge_is_the_batch_itself() -> None:
    batch = Batch(["a"], [1], [0], None, [0])
    assert batch.for_child(1) is batch


def test_concatenate_fills_in_headers_and_old_values_where_a_batch_has_none() -> None:
    one = batch_of(("a", 1), headers=[(("h", b""),)])
    two = batch_of(("b", 2), olds=[9])
    both = concatenate([one, two])
    assert both.headers == [(("h", b""),), ()]
    assert both.olds == [None, 9]


def test_concatenate_of_one_batch_is_that_batch() -> None:
    batch = batch_of(("a", 1))
    assert concatenate([batch]) is batch


def test_interleave_puts_rows_where_one_at_a_time_would_have() -> None:
    whole = batch_of(("a", 0), ("b", 1), ("c", 2), ("d", 3))
    first, second = whole.take([0, 3]).for_child(0), whole.take([0, 1, 2]).for_child(1)
    assert pairs_of(interleave([second, first])) == [("a", 0), ("a", 0), ("b", 1), ("c", 2), ("d", 3)]


def test_interleave_takes_an_edge_of_an_earlier_child_first() -> None:
    batch = batch_of(("a", 0), ("b", 1))
    first, second = batch.with_values(["1st", "1st"]), batch.with_values(["2nd", "2nd"])
    together = interleave([second.for_child(1), first.for_child(0)])
    assert pairs_of(together) == [("a", "1st"), ("a", "2nd"), ("b", "1st"), ("b", "2nd")]


def test_interleave_of_fanned_out_rows_finishes_a_row_before_the_next() -> None:
    batch = batch_of(("a", 0), ("b", 1))
    fanned = batch.for_child(0).expand([0, 0, 1], ["a1", "a2", "b1"], [0, 0, 0])
    together = interleave([batch.for_child(1), fanned])
    assert together.keys == ["a1", "a2", "a", "b1", "b"]


def test_interleave_without_order_keys_concatenates() -> None:
    one, two = Batch(["a"], [1], [5], None, [1]), Batch(["b"], [2], [4], None, [0])
    assert pairs_of(interleave([one, two])) == [("a", 1), ("b", 2)]


def test_interleave_of_empty_batches_is_empty() -> None:
    empty = batch_of()
    assert len(interleave([empty, empty])) == 0


def test_interleave_leaves_empty_batches_out() -> None:
    batch = batch_of(("a", 1))
    assert interleave([batch_of(), batch]) is batch
