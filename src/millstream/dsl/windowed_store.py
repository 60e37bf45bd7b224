"""Where a windowed table of the DSL lives: the store and the keys that follow from its windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.dsl.graph import Graph, first_given
from millstream.dsl.materialized import Materialized
from millstream.errors import TopologyError
from millstream.record import MAX_TIME
from millstream.serdes import Serde, auto, session_windowed, time_windowed
from millstream.state.specs import Store, StoreKind
from millstream.windows import (
    ON_WINDOW_UPDATE,
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

__all__ = ["windowed_keys", "windowed_store"]


def windowed_store(
    graph: Graph,
    store: Store,
    prefix: str,
    windows: Windows,
    emit: EmitStrategy = ON_WINDOW_UPDATE,
) -> Materialized:
    """The store of a windowed table: it keeps windows for as long as records can change them, or longer.

    Where windows are emitted on close they are found by time, and nothing is cached: there is one update.
    """
    on_close = emit.on_close
    least = _least_retention_ms(windows)
    given = first_given(store.retention_ms, least)
    if given < least:
        raise TopologyError(
            f"{_named(store)} keeps windows for {given} ms, but {windows} can change for {least} ms: they "
            f"would be gone before they are complete. Remedy: Store(retention={least}) or longer, or none: "
            "it is the default"
        )
    kept = replace(store, retention_ms=given, retention=None, caching=store.caching and not on_close)
    if isinstance(windows, SessionWindows):
        # A session whose end is just as long ago is still open: it must be there when it closes.
        kept = replace(kept, retention_ms=max(given, least + on_close))
        kind, size_ms = StoreKind.SESSION, None
    else:
        kind, size_ms = StoreKind.TIMESTAMPED_WINDOW, _size_ms(windows)
    kept_for = _described(windows, on_close=on_close)
    return Materialized.of(graph, kept, prefix, kind, size_ms, windows=kept_for, time_ordered=on_close)


def windowed_keys(key: Any, windows: Windows) -> Serde[Any]:
    """The serde of the keys of a windowed table, from that of the keys that were grouped by."""
    inner = first_given(key, auto)
    if isinstance(windows, SessionWindows):
        return session_windowed(inner)
    return time_windowed(inner, _size_ms(windows))


def _least_retention_ms(windows: Windows) -> int:
    """For as long as records can change a window; sliding windows are made of those before them, too."""
    match windows:
        case TimeWindows():
            return windows.size_ms + windows.grace_ms
        case SlidingWindows():
            return 2 * windows.difference_ms + windows.grace_ms
        case SessionWindows():
            return windows.gap_ms + windows.grace_ms
        case UnlimitedWindows():
            return MAX_TIME


def _described(windows: Windows, *, on_close: bool) -> str:
    """What must stay as it is for the rows of a store to be right.

    A grace may change, and so may the gap of sessions: they say what becomes of records to come, and a row
    is right by the rule of its time. Not where windows are emitted on close: a shorter grace would hide
    windows that were not emitted yet, a longer one would change some that were.
    """
    match windows:
        case TimeWindows():
            text = f"time windows of {windows.size_ms} ms that advance by {windows.advance_ms} ms"
        case SlidingWindows():
            text = f"sliding windows of {windows.difference_ms} ms"
        case SessionWindows():
            text = f"sessions with a gap of {windows.gap_ms} ms" if on_close else "sessions"
        case UnlimitedWindows():
            text = f"an unlimited window from {windows.start_ms} ms on"
    return f"{text}, emitted on close with a grace of {windows.grace_ms} ms" if on_close else text


def _size_ms(windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> int:
    """From the start of a window to its end."""
    match windows:
        case TimeWindows():
            return windows.size_ms
        case SlidingWindows():
            return windows.difference_ms
        case UnlimitedWindows():
            return MAX_TIME


def _named(store: Store) -> str:
    return "a store" if store.name is None else f"the store {store.name!r}"
