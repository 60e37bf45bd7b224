"""The families of golden cases: importing this registers all of them. The order is that of `tests/oracle`."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from types import ModuleType

from tests.semantics.topologies import (
    cogroups,
    emitting,
    grouped_tables,
    grouping,
    headers,
    odd,
    optimizations,
    processor_api,
    processors,
    programs,
    punctuators,
    repartitions,
    session_windows,
    sinks,
    sliding_windows,
    sources,
    splitting,
    stateless,
    stores,
    suppressing,
    tables,
    time_windows,
    timestamps,
    versioned_tables,
    windowed_cogroups,
)

import millstream
from millstream import KStream, KTable

_FAMILIES = (
    stateless,
    splitting,
    sources,
    sinks,
    grouping,
    tables,
    grouped_tables,
    cogroups,
    repartitions,
    optimizations,
    processors,
    punctuators,
    headers,
    stores,
    processor_api,
    programs,
    odd,
    time_windows,
    sliding_windows,
    session_windows,
    emitting,
    suppressing,
    windowed_cogroups,
    versioned_tables,
    timestamps,
)

# Joins by the names with which their cases begin. Those that the DSL does not have yet are left out.
_JOINS = {
    "stream_stream_": ("stream_stream_joins", hasattr(millstream, "JoinWindows")),
    "self_join": ("self_joins", hasattr(millstream, "JoinWindows")),
    "stream_table_": ("stream_table_joins", hasattr(KTable, "join")),
    "table_table_": ("table_table_joins", hasattr(KTable, "join")),
    "foreign_key_": ("foreign_key_joins", hasattr(KTable, "foreign_key_join")),
    "global_table_join_": (
        "global_table_joins",
        hasattr(KStream, "join") and "key_of" in signature(KStream.join).parameters,
    ),
}
_JOINS["global_table_left_join_"] = _JOINS["global_table_join_"]

LEFT_OUT = tuple(names for names, (_, exists) in _JOINS.items() if not exists)


def _joins() -> tuple[ModuleType, ...]:
    modules = dict.fromkeys(module for module, exists in _JOINS.values() if exists)
    return tuple(import_module(f"tests.semantics.topologies.{module}") for module in modules)


FAMILIES: tuple[ModuleType, ...] = (*_FAMILIES, *_joins())
