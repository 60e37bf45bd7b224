"""When the windows of a table close: found by walking up the graph to the operators that make them."""

from __future__ import annotations

from millstream.dsl.graph import GraphNode
from millstream.errors import TopologyError
from millstream.windows import SessionWindows, UnlimitedWindows

__all__ = ["window_grace_ms"]


def window_grace_ms(node: GraphNode) -> int:
    """How long after its end a window of this table may still change; the longest, if there are several.

    >>> from millstream import StreamsBuilder
    >>> window_grace_ms(StreamsBuilder().table("prices").node)
    Traceback (most recent call last):
    millstream.errors.TopologyError: Suppressed.until_window_closes() needs a table with windows, but ...
    """
    return _longest(node, "")


def _longest(node: GraphNode, behind: str) -> int:
    if isinstance(node.windows, UnlimitedWindows):
        raise TopologyError(
            "an unlimited window never closes, so suppress(Suppressed.until_window_closes()) would hold its "
            "results back for ever. Remedy: Suppressed.until_time_limit(...), or windows that end"
        )
    if node.windows is not None:
        gap = node.windows.gap_ms if isinstance(node.windows, SessionWindows) else 0
        return node.windows.grace_ms + gap
    if not node.parents:  # the root of the graph, which is no operator
        raise TopologyError(
            "Suppressed.until_window_closes() needs a table with windows, but no operator in front of it "
            f"makes any: {behind}. Remedy: aggregate behind windowed_by(...), or use "
            "Suppressed.until_time_limit(...)"
        )
    if node.leaves_windows:
        raise TopologyError(
            "Suppressed.until_window_closes() needs a table with windows, but the group_by() in front of it "
            f"gives rows new keys that have none: {node.name} -> {behind}. Remedy: suppress before "
            "group_by(); if its groups are Windowed, give it key=serdes.time_windowed(...) or "
            "serdes.session_windowed(...); or use Suppressed.until_time_limit(...)"
        )
    path = f"{node.name} -> {behind}" if behind else node.name
    return max(_longest(parent, path) for parent in node.parents)
