"""What the processors, transformers and punctuators of a random topology do.

Written once, against the few methods of a context that both the engine's and the oracle's have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.properties.functions import MODULUS, Key, Value, key_number, number
from tests.properties.spec import (
    CancelPunctuator,
    Forward,
    Process,
    Punctuator,
    ReadGlobal,
    ReadTable,
    RequestCommit,
    TransformValues,
    UseStore,
)

NO_KEY = "none"
"""Under which a record without a key is kept in a store."""


class Program:
    """The life of one processor."""

    def __init__(
        self, op: Process, context: Any, make_record: Callable[..., Any], schedule: Callable[..., Any]
    ) -> None:
        self._op = op
        self.context = context
        self._make_record = make_record
        self._scheduled = [schedule(one, self._caller(one)) for one in op.punctuators]

    def process(self, record: Any) -> None:
        answer = 0
        for step in self._op.steps:
            match step:
                case UseStore():
                    answer = use_store(step, self.context.state_store(step.store), record.key, record.value)
                case ReadTable():
                    answer = _looked_up(self.context.state_store(f"store{step.table}"), record.key)
                case ReadGlobal():
                    answer = _looked_up(self.context.state_store(f"store{step.table}"), record.key)
                case Forward():
                    self._forward(step, record, answer)
                case CancelPunctuator():
                    if step.when(record.key, record.value):
                        self._scheduled[step.punctuator].cancel()
                case RequestCommit():
                    self.context.commit()

    def _forward(self, step: Forward, record: Any, answer: int) -> None:
        if step.only is not None and not step.only(record.key, record.value):
            return
        shown = shows(step.show, self.context, record.value, answer)
        sent = record.with_value(shown).with_timestamp(record.timestamp + step.time_shift)
        if step.new_key is not None:
            sent = sent.with_key(step.new_key(record.key, record.value))
        if step.add_header:
            sent = sent.with_headers((*record.headers, ("by", str(answer).encode())))
        self.context.forward(sent, _child(step.child))

    def _caller(self, one: Punctuator) -> Callable[[int], None]:
        def call(timestamp: int) -> None:
            for key, value in self._punctuated(one, timestamp):
                record = self._make_record(key, value, timestamp)
                self.context.forward(record, _child(one.child))
            if one.once:
                self._scheduled[self._op.punctuators.index(one)].cancel()

        return call

    def _punctuated(self, one: Punctuator, timestamp: int) -> Sequence[tuple[Key, Value]]:
        if one.store is None or one.action == "tick":
            return [(f"k{timestamp % 3}", timestamp + self.context.current_stream_time_ms())]
        store = self.context.state_store(one.store)
        if one.action == "dump":
            return list(store.all())
        calls = (store.get("calls") or 0) + 1
        store.put("calls", calls)
        return [("calls", calls)]


def transform(op: TransformValues, context: Any, key: Key, value: Value) -> Value:
    """What a transformer answers; None for a deleted row that it knows nothing about."""
    op.poison.check(value)
    answer = 0
    for step in op.steps:
        answer = use_store(step, context.state_store(step.store), key, value)
    if value is None and answer % 2 == 0:
        return None
    return shows(op.show, context, value, answer)


def use_store(step: UseStore, store: Any, key: Key, value: Value) -> int:
    """Do something to a store."""
    place = NO_KEY if key is None else key
    before = store.get(place) or 0
    match step.how:
        case "count":
            store.put(place, before + 1)
            return int(before + 1)
        case "remember":
            store.put(place, number(value))
        case "remove":
            return store.delete(place) or 0
        case "scan":
            return _sum_of(store.all())
        case "range":
            store.put_all([(place, number(value)), ("k1", number(value) + 1)])
            return _sum_of(store.range("k0", "k2"))
        case "if absent":
            return store.put_if_absent(place, number(value)) or 0
    return int(before)


def shows(show: str, context: Any, value: Value, answer: int) -> int:
    """A value that tells something about where and when it was made."""
    seen = number(value)
    metadata = context.record_metadata
    if show == "answer":
        seen += 7 * answer
    elif show == "stream time":
        seen += 3 * context.current_stream_time_ms() + context.current_system_time_ms()
    elif show == "headers":
        seen += sum(key_number(name) + len(data or b"") for name, data in context.headers)
    elif show == "metadata" and metadata is not None:
        # Repartitions have numbers in their names that only the engine knows.
        topic = 0 if metadata.topic.endswith("-repartition") else key_number(metadata.topic)
        seen += 5 * metadata.offset + 101 * metadata.partition + topic
    return seen % MODULUS


def _looked_up(store: Any, key: Key) -> int:
    found = store.get(NO_KEY if key is None else key)
    if found is None or isinstance(found, int):
        return found or 0
    return number(found.value) + int(found.timestamp)


def _sum_of(pairs: Any) -> int:
    total = 0
    for key, value in pairs:
        total = (total * 31 + key_number(key) + number(value)) % MODULUS
    return total


def _child(number_of_op: int | None) -> str | None:
    return None if number_of_op is None else f"op{number_of_op}"
