"""The families of golden cases: importing this registers all of them. The order is that of `tests/oracle`."""

from __future__ import annotations

from tests.semantics.topologies import (
    cogroups,
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
    sinks,
    sources,
    splitting,
    stateless,
    stores,
    tables,
)

FAMILIES = (
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
)
