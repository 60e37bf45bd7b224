"""The store of a table, by key or by window: one description, made into one builder."""

from __future__ import annotations

import pytest

from millstream import KGroupedTable, KStream, Store, serdes
from millstream.dsl.graph import Graph, Handles
from millstream.dsl.materialized import Materialized
from millstream.errors import TopologyError
from millstream.state.specs import StoreBuilder, StoreKind, session, timestamped_window

COUNTS = Store("counts", key=serdes.string, value=serdes.int64, caching=False, retention_ms=60_000)


def new_graph() -> Graph:
    return Graph(Handles(KStream, KGroupedTable))


def test_a_table_is_kept_by_key_unless_it_says_otherwise() -> None:
    own = Materialized.of(new_graph(), Store(), "AGGREGATE-")
    assert (own.builder.kind, own.builder.name) == (StoreKind.TIMESTAMPED_KEY_VALUE, own.name)
    assert own.queryable_name is None


@pytest.mark.parametrize(
    ("kind", "window_size_ms", "expected"),
    [
        (
            StoreKind.TIMESTAMPED_WINDOW,
            10_000,
            timestamped_window(
                "counts", window_size_ms=10_000, retention_ms=60_000, key=serdes.string, value=serdes.int64
            ),
        ),
        (
            StoreKind.SESSION,
            None,
            session("counts", retention_ms=60_000, key=serdes.string, value=serdes.int64),
        ),
    ],
    ids=["window", "session"],
)
def test_a_table_may_be_kept_by_window(
    kind: StoreKind, window_size_ms: int | None, expected: StoreBuilder
) -> None:
    own = Materialized.of(new_graph(), COUNTS, "AGGREGATE-", kind, window_size_ms)
    assert own.builder == expected
    assert own.builder is own.builder
    assert own.queryable_name == "counts"


def test_a_table_by_window_needs_a_retention() -> None:
    own = Materialized.of(new_graph(), Store("counts"), "AGGREGATE-", StoreKind.TIMESTAMPED_WINDOW, 10)
    with pytest.raises(TopologyError, match="the timestamped window store 'counts' has a retention of None"):
        _ = own.builder
