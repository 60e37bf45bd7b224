"""A topology as an application runs it: what settings decide about the whole of it."""

from __future__ import annotations

from typing import Any

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.topology.topology import Topology

__all__ = ["as_configured"]


def as_configured(given: Any, config: StreamsConfig, what: str) -> Topology:
    """The topology that was given to run it, if it is one.

    >>> from millstream import StreamsBuilder
    >>> as_configured(StreamsBuilder(), StreamsConfig(), "Streams")
    Traceback (most recent call last):
    millstream.errors.ConfigError: Streams() got a StreamsBuilder, not a topology. Remedy: ... .build() ...
    """
    if not isinstance(given, Topology):
        if isinstance(given, type) or not callable(getattr(given, "build", None)):
            remedy = "build one: StreamsBuilder().build(), or Topology()"
        else:
            remedy = "give it what .build() returns: builder.build()"
        raise ConfigError(f"{what}() got a {type(given).__name__}, not a topology. Remedy: {remedy}")
    if not given.graph.nodes:
        raise ConfigError(
            f"{what}() got a topology that reads no topic. Likely cause: build() was called before the "
            "program, or on another builder. Remedy: builder.stream(...) or table(...) first, then build()"
        )
    return given if config.caching else given.without_caching()
