"""Hot cells give what the backend would give, whatever was read, written or forgotten before."""

from __future__ import annotations

import random
from collections.abc import Sequence

from millstream.state.backends.memory import MemoryBackend
from millstream.state.local import hot_cells
from millstream.state.local.hot_cells import CellBudget, HotCells


class Counted(MemoryBackend):
    """A backend that counts the keys that it is asked for."""

    asked = 0

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.asked += len(keys)
        return super().get_many(keys)


def key(number: int) -> bytes:
    return b"%04d" % number


def test_they_agree_with_the_backend_however_few_of_them_there_is_room_for() -> None:
    for most in (0, 1_000, 5_000, 1 << 20):
        chosen = random.Random(most)
        backend, budget = MemoryBackend(), CellBudget(most=3 * most)
        cells = HotCells(backend, budget, most=most)
        for epoch in range(60):
            keys = sorted({key(chosen.randrange(50)) for _ in range(chosen.randrange(20))})
            assert cells.get_many(keys) == backend.get_many(keys)
            written = sorted({key(chosen.randrange(50)) for _ in range(chosen.randrange(10))})
            entries = [(one, None if chosen.random() < 0.2 else b"%d" % epoch) for one in written]
            backend.write(entries, marker=b"")
            cells.written(entries)
            assert 0 <= budget.used <= 3 * most


def test_what_is_hot_is_not_read_again() -> None:
    backend = Counted()
    cells = HotCells(backend, CellBudget())
    keys = [key(number) for number in range(100)]
    cells.get_many(keys)
    cells.get_many(keys)
    cells.written([(one, b"new") for one in keys])
    cells.get_many(keys)
    assert backend.asked == 100


def test_many_keys_are_read_past_them_and_many_writes_clear_them() -> None:
    backend, budget = Counted(), CellBudget()
    cells = HotCells(backend, budget)
    many = [key(number) for number in range(hot_cells._MANY_KEYS)]
    cells.get_many(many)
    assert budget.used == 0
    cells.get_many(many[:1])
    assert budget.used > 0
    entries = [(one, b"new") for one in many]
    backend.write(entries, marker=b"")
    cells.written(entries)
    assert budget.used == 0
    assert cells.get_many(many[:1]) == [b"new"]


def test_no_more_bytes_are_held_than_all_stores_may_hold_together() -> None:
    budget = CellBudget(most=10_000)
    several = [HotCells(MemoryBackend(), budget) for _ in range(5)]
    for number in range(100):
        several[number % 5].get_many([key(number)])
        assert budget.used <= 10_000
    for cells in several:
        cells.forget()
    assert budget.used == 0
