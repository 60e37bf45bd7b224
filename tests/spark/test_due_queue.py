"""Our queue of punctuators against the one that Kafka uses: Java's own, in Spark's JVM."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark import SparkContext

from millstream.task.due_queue import heapify, offer, poll

pytestmark = pytest.mark.xdist_group("spark")


@dataclass(slots=True)
class Item:
    due: int
    number: int


class JavaQueue:
    """`java.util.PriorityQueue` of entries that are compared by their keys alone."""

    def __init__(self, spark: SparkContext) -> None:
        self._java: Any = spark._jvm.java  # type: ignore[union-attr]
        self._queue = self._java.util.PriorityQueue(getattr(self._java.util, "Map$Entry").comparingByKey())

    def offer(self, item: Item) -> None:
        self._queue.offer(getattr(self._java.util, "AbstractMap$SimpleEntry")(item.due, item.number))

    def poll(self) -> int:
        return int(self._queue.poll().getValue())

    def numbers(self) -> list[int]:
        return [int(entry.getValue()) for entry in self._java.util.ArrayList(self._queue)]


@pytest.mark.parametrize("seed", range(4))
def test_it_makes_the_same_moves_as_javas(spark: SparkContext, seed: int) -> None:
    chance = random.Random(seed)
    ours: list[Item] = []
    java = JavaQueue(spark)
    for number in range(120):
        if ours and chance.random() < 0.45:
            assert java.poll() == poll(ours).number
        else:
            item = Item(chance.randrange(5), number)
            offer(ours, item)
            java.offer(item)
        if number % 10 == 0:
            assert java.numbers() == [item.number for item in ours]
    assert [java.poll() for _ in list(ours)] == [poll(ours).number for _ in list(ours)]


def test_a_heap_is_right_already_and_anything_else_is_put_right() -> None:
    chance = random.Random(5)
    items = [Item(chance.randrange(9), number) for number in range(40)]
    heap: list[Item] = []
    for item in items:
        offer(heap, item)
    again = list(heap)
    heapify(again)
    assert again == heap
    heapify(items)
    assert [poll(items).due for _ in list(items)] == sorted(item.due for item in heap)
