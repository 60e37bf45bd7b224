"""Updates that wait: however often a key is updated, its last update waits, in the order of the last ones."""

from __future__ import annotations

import pytest
from tests.processors.kit import batch_of, pairs_of

from millstream.processors import record_cache
from millstream.processors.record_cache import RecordCache, last_of_each


def test_updates_that_were_overtaken_are_let_go_of_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_cache, "MOST_UPDATES", 4)
    cache = RecordCache()
    for number in range(20):
        key = "abc"[number % 3]
        cache.hold(([key.encode()], batch_of((key, number))))
    waiting = cache.take()
    assert sum(len(keys) for keys, _ in waiting) <= 7
    keys, batch = last_of_each(waiting)
    assert (keys, pairs_of(batch)) == ([b"c", b"a", b"b"], [("c", 17), ("a", 18), ("b", 19)])
    assert cache.take() == []
