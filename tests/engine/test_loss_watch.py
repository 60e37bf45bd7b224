"""An epoch is given up when an executor is lost in the middle of it, and not because of one lost before."""

from __future__ import annotations

import threading

import pytest

from millstream.engine.spark import loss_watch
from millstream.engine.spark.loss_watch import LossWatch

CAP_S = 30.0


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_watch, "_LOOKS_EVERY_S", 0.001)


def test_an_epoch_is_given_up_when_an_executor_is_lost() -> None:
    looked, lost, given_up = threading.Semaphore(0), threading.Event(), threading.Event()

    def is_lost() -> bool:
        looked.release()
        return lost.is_set()

    watch = LossWatch(is_lost, given_up.set)
    with watch.epoch_at_work():
        assert looked.acquire(timeout=CAP_S)
        assert looked.acquire(timeout=CAP_S)
        assert not given_up.is_set()
        lost.set()
        assert given_up.wait(CAP_S)
    watch.close()


def test_nobody_looks_between_epochs_and_a_spark_that_does_not_answer_ends_nothing() -> None:
    looked = threading.Semaphore(0)

    def refused() -> bool:
        looked.release()
        raise OSError("Spark is gone")

    watch = LossWatch(refused, lambda: None)
    assert watch._thread is None
    for _ in range(2):
        with watch.epoch_at_work():
            assert looked.acquire(timeout=CAP_S)
            assert looked.acquire(timeout=CAP_S)
    watch.close()
