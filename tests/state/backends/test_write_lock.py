"""Whoever writes a store goes before readers of other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from millstream.state.backends.write_lock import WriteLock


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_writer_that_waits_goes_before_readers_that_come_later_however_many_they_are() -> None:
    lock, order, is_over = WriteLock(), list[str](), threading.Event()

    def read() -> None:
        with lock.reading():
            order.append("reader")

    def read_again_and_again() -> None:
        while not is_over.is_set():
            with lock.reading():
                pass

    def write() -> None:
        with lock:
            order.append("writer")

    with lock.reading():
        writer = threading.Thread(target=write)
        writer.start()
        until(lambda: lock._writers == 1)
        reader = threading.Thread(target=read)
        reader.start()
        others = [threading.Thread(target=read_again_and_again) for _ in range(4)]
        for other in others:
            other.start()
        assert not lock.try_hold()
        assert order == []
    writer.join(60)
    reader.join(60)
    is_over.set()
    for other in others:
        other.join(60)
    assert order == ["writer", "reader"]
    assert lock.try_hold()
