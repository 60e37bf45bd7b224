"""A pinned store shows what was there when it was pinned, whatever is written; or says that it can't."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from millstream.state.backends import supplier
from millstream.state.backends.memory import MemoryBackend
from millstream.state.errors import PinLostError, StoreClosedError, StoreNotHereError
from millstream.state.local.readable_stores import ReadableStores
from millstream.state.local.whole_version import WholeVersion
from millstream.state.stores import pinned
from millstream.state.stores.pinned import PinnedStore
from millstream.types import Version

KEYS = [f"{number:03}".encode() for number in range(120)]


def rows_of(pin: PinnedStore, *, reverse: bool, most_rows: int) -> list[tuple[bytes, bytes]]:
    """All rows, page by page."""
    rows: list[tuple[bytes, bytes]] = []
    start: bytes | None = None
    end: bytes | None = None
    while True:
        page = pin.page(start, end, most_rows, 1 << 20, reverse=reverse)
        rows += page.rows
        if page.is_end:
            return rows
        if reverse:
            end = page.rows[-1][0]
        else:
            start = page.rows[-1][0] + b"\0"


@pytest.mark.parametrize("seed", range(8))
def test_pins_of_several_versions_are_read_while_the_store_is_written(
    tmp_path: Path, backend: str, seed: int
) -> None:
    chance = random.Random(seed)
    print("seed", seed)
    with supplier(backend).open(tmp_path / "store") as store:
        now: dict[bytes, bytes] = {}
        pins: list[tuple[PinnedStore, dict[bytes, bytes]]] = []
        for step in range(40):
            keys = sorted(chance.sample(KEYS, chance.choice([1, 5, 60])))
            written = [(key, None if chance.random() < 0.3 else f"{step}".encode()) for key in keys]
            store.write(written, marker=b"")
            now.update((key, value) for key, value in written if value is not None)
            now = {key: value for key, value in now.items() if (key, None) not in written}
            if chance.random() < 0.3:
                pins.append((PinnedStore(store), dict(now)))
            for pin, then in pins:
                some = sorted(chance.sample(KEYS, 10))
                assert pin.get_many(some, 1 << 20) == [then.get(key) for key in some]
            if pins and chance.random() < 0.3:
                pin, then = pins.pop(chance.randrange(len(pins)))
                reverse = chance.random() < 0.5
                found = rows_of(pin, reverse=reverse, most_rows=chance.choice([1, 7, 1000]))
                assert found == sorted(then.items(), reverse=reverse)
                pin.close()


@pytest.mark.parametrize("seed", range(2))
def test_a_thread_that_reads_beside_the_one_that_writes_sees_whole_versions_only(
    tmp_path: Path, backend: str, seed: int
) -> None:
    print("seed", seed)
    whole, is_over = WholeVersion("0_0", Version(0)), threading.Event()
    problems: list[object] = []
    seen: set[int] = set()
    with supplier(backend).open(tmp_path / "store") as store:

        def read() -> None:
            chance = random.Random(seed)
            last = 0
            while not is_over.is_set() or not seen:
                with whole.read(Version(last), wait_s=60) as version:
                    pin = PinnedStore(store)
                found = rows_of(pin, reverse=chance.random() < 0.5, most_rows=chance.choice([3, 50, 1000]))
                pin.close()
                values = {int(value) for _, value in found} or {0}
                if values != {version} or version < last:
                    problems.append((version, last, values))
                    return
                last = version
                seen.add(version)

        thread = threading.Thread(target=read)
        thread.start()
        for version in range(1, 60):
            value = str(version).encode()
            with whole.moved_to(Version(version)):  # in two steps, as copies that have a long way
                store.write([(key, value) for key in KEYS[:60]], marker=b"")
                store.write([(key, value) for key in KEYS[60:]], marker=b"")
        is_over.set()
        thread.join()
    assert problems == []
    assert seen


def test_a_pin_that_holds_too_much_is_lost_and_the_store_goes_on() -> None:
    store = MemoryBackend()
    store.write([(key, b"x" * 100) for key in KEYS], marker=b"")
    pin = PinnedStore(store, most_bytes=10_000)
    store.write([(key, b"y") for key in KEYS[:10]], marker=b"")
    assert pin.get_many(KEYS[:1], 100) == [b"x" * 100]
    store.write([(key, b"z") for key in KEYS], marker=b"")
    with pytest.raises(PinLostError, match="commits have changed more than"):
        pin.get_many(KEYS[:1], 100)
    assert store.get_many(KEYS[:1]) == [b"z"]


def test_a_pin_that_nobody_asks_is_lost_with_the_next_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "LONGEST_IDLE_S", -1.0)
    store = MemoryBackend()
    pin = PinnedStore(store)
    assert pin.get_many(KEYS[:1], 100) == [None]
    store.write([(KEYS[0], b"1")], marker=b"")
    with pytest.raises(PinLostError, match="nobody has asked"):
        pin.get_many(KEYS[:1], 100)


def test_a_pin_is_lost_when_rows_expire_and_when_the_store_is_closed() -> None:
    store = MemoryBackend()
    expired, closed = PinnedStore(store), PinnedStore(store)
    store.write([], marker=b"", drop=(b"0", b"1"))
    with pytest.raises(PinLostError, match="rows have expired"):
        expired.size()
    closed = PinnedStore(store)
    store.close()
    with pytest.raises(StoreClosedError):
        closed.size()


def test_an_answer_has_a_bound_in_rows_and_in_bytes_but_never_nothing() -> None:
    store = MemoryBackend()
    store.write([(key, b"x" * 100) for key in KEYS], marker=b"")
    pin = PinnedStore(store)
    assert len(pin.page(None, None, 7, 1 << 20, reverse=False).rows) == 7
    assert len(pin.page(None, None, 1000, 250, reverse=False).rows) == 3
    assert len(pin.page(None, None, 1000, 1, reverse=True).rows) == 1
    assert pin.get_many(KEYS, 250) == [b"x" * 100] * 3
    assert pin.get_many(KEYS[:2], 1) == [b"x" * 100]


def test_a_process_keeps_so_many_pins_and_lets_the_oldest_go() -> None:
    store, readable = MemoryBackend(), ReadableStores(most_pins=2)
    numbers = [readable.keep(PinnedStore(store)) for _ in range(3)]
    with pytest.raises(PinLostError):
        readable.pinned(numbers[0])
    readable.let_go(numbers[1])
    with pytest.raises(PinLostError):
        readable.pinned(numbers[1])
    assert readable.pinned(numbers[2]).get_many(KEYS[:1], 100) == [None]
    assert len(store._watchers) == 1


def test_stores_that_are_moved_behind_or_closed_are_not_read() -> None:
    whole = WholeVersion("0_0", Version(3))
    with (
        pytest.raises(StoreNotHereError, match="at version 3 here, and 4 is wanted"),
        whole.read(Version(4), 0),
    ):
        pass
    broken = pytest.raises(ZeroDivisionError)
    with broken, whole.moved_to(Version(4)):
        raise ZeroDivisionError
    with pytest.raises(StoreNotHereError, match="on the way"), whole.read(Version(0), 0):
        pass
    whole.close()
    with pytest.raises(StoreNotHereError, match="closed"), whole.read(Version(0), 0):
        pass


def test_a_pin_that_is_let_go_by_another_thread_while_it_is_read_is_read_to_the_end_first() -> None:
    backend = MemoryBackend()
    keys = [b"%02d" % number for number in range(10)]
    backend.write([(key, b"old") for key in keys], marker=b"")
    pin = PinnedStore(backend)
    backend.write([(key, b"new") for key in keys], marker=b"")
    closer = threading.Thread(target=pin.close)
    get = pin._before.get

    def let_go_meanwhile(key: bytes) -> bytes | None:
        if key == keys[4]:
            closer.start()
            closer.join(0.05)
            assert closer.is_alive()
        return get(key)

    pin._before.get = let_go_meanwhile  # type: ignore[method-assign]
    assert pin.get_many(keys, 1 << 20) == [b"old"] * 10
    closer.join(60)
    with pytest.raises(PinLostError, match="let go"):
        pin.get_many(keys, 1 << 20)
