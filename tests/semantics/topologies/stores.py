"""Key-value stores, driven by commands: each record's value is a call, each output's value its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.semantics.registry import papi
from tests.semantics.shapes import WORDS, each

from millstream import ProcessorContext, Record, StoreBuilder, Topology, serdes, stores
from millstream.record import ValueAndTimestamp


@dataclass(frozen=True)
class _Dialect:
    """How commands spell keys and values, and how results show values."""

    key: Callable[[str], Any]
    value: Callable[[str, int], Any]
    shown: Callable[[Any], str]
    prefix_serde: Any

    def key_of(self, spelled: str) -> Any:
        """A key as written; "-" is an open end and "null" is None."""
        return None if spelled in {"-", "null"} else self.key(spelled)

    def value_of(self, spelled: str, time: int) -> Any:
        return None if spelled == "null" else self.value(spelled, time)

    def show(self, value: Any) -> str:
        return "nothing" if value is None else self.shown(value)

    def show_all(self, entries: Any) -> str:
        with entries as rows:
            return " ".join(f"{key}={self.show(value)}" for key, value in rows)


_TEXT = _Dialect(str, lambda value, time: value, str, serdes.string)
_STAMPED = _Dialect(str, ValueAndTimestamp, lambda cell: f"{cell.value}@{cell.timestamp}", serdes.string)
_NUMBERED = _Dialect(int, lambda value, time: value, str, serdes.int64)


def _obey(store: Any, dialect: _Dialect, command: str, time: int) -> str:
    verb, *words = command.split(" ")
    if verb == "put_all":
        pairs = [word.split("=") for word in words]
        store.put_all([(dialect.key_of(key), dialect.value_of(value, time)) for key, value in pairs])
        return "done"
    if verb == "put":
        store.put(dialect.key_of(words[0]), dialect.value_of(words[1], time))
        return "done"
    if verb == "put_if_absent":
        return dialect.show(store.put_if_absent(dialect.key_of(words[0]), dialect.value_of(words[1], time)))
    if verb == "prefix_scan":
        return dialect.show_all(store.prefix_scan(dialect.key(words[0]), dialect.prefix_serde))
    if verb == "number":
        return str(store.approximate_num_entries())
    call = getattr(store, verb)
    result = call(*(dialect.key_of(word) for word in words))
    return dialect.show(result) if verb in {"get", "delete"} else dialect.show_all(result)


def _build(topology: Topology, store: StoreBuilder, dialect: _Dialect) -> None:
    def obey(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        result = _obey(context.state_store("store"), dialect, record.value, record.timestamp)
        context.forward(record.with_value(result))

    topology.add_source("commands", "in", **WORDS)
    topology.add_processor("clerk", each(obey), "commands")
    topology.add_state_store(store, "clerk")
    topology.add_sink("results", "out", "clerk", **WORDS)


def _plain(*, caching: bool = False) -> StoreBuilder:
    return stores.key_value("store", **WORDS, caching=caching)


def _timestamped(*, caching: bool = False) -> StoreBuilder:
    return stores.timestamped_key_value("store", **WORDS, caching=caching)


@papi
def store_points(t: Topology) -> None:
    _build(t, _plain(), _TEXT)


@papi
def store_points_cached(t: Topology) -> None:
    _build(t, _plain(caching=True), _TEXT)


@papi
def store_points_persistent(t: Topology) -> None:
    _build(t, _plain(), _TEXT)


@papi
def store_points_timestamped(t: Topology) -> None:
    _build(t, _timestamped(), _STAMPED)


@papi
def store_points_timestamped_cached(t: Topology) -> None:
    _build(t, _timestamped(caching=True), _STAMPED)


@papi
def store_ranges(t: Topology) -> None:
    _build(t, _plain(), _TEXT)


@papi
def store_ranges_cached(t: Topology) -> None:
    _build(t, _plain(caching=True), _TEXT)


@papi
def store_ranges_persistent(t: Topology) -> None:
    _build(t, _plain(), _TEXT)


@papi
def store_ranges_timestamped(t: Topology) -> None:
    _build(t, _timestamped(), _STAMPED)


@papi
def store_prefix_scan(t: Topology) -> None:
    _build(t, _plain(), _TEXT)


@papi
def store_prefix_scan_cached(t: Topology) -> None:
    _build(t, _plain(caching=True), _TEXT)


@papi
def store_prefix_scan_timestamped(t: Topology) -> None:
    _build(t, _timestamped(), _STAMPED)


@papi
def store_order_of_int_keys(t: Topology) -> None:
    _build(t, stores.key_value("store", key=serdes.int64, value=serdes.string), _NUMBERED)


@papi
def store_number_of_entries(t: Topology) -> None:
    _build(t, _plain(), _TEXT)


@papi
def store_get_of_null_key_fails(t: Topology) -> None:
    _build(t, _plain(), _TEXT)


@papi
def store_put_of_null_key_fails(t: Topology) -> None:
    _build(t, _plain(), _TEXT)
