"""Types by name: "string", "int64", and for keys "time:SIZE" and "session", which are windowed strings."""

from __future__ import annotations

from typing import Any

from millstream import Windowed, serdes


def serde(name: str) -> Any:
    """The serde of a type.

    >>> serde("int64") is serdes.int64
    True
    """
    if name.startswith("time:"):
        return serdes.time_windowed(serdes.string, int(name.removeprefix("time:")))
    if name == "session":
        return serdes.session_windowed(serdes.string)
    return {"string": serdes.string, "int64": serdes.int64}[name]


def as_json(anything: Any) -> Any:
    """A key or value as JSON has it.

    >>> from millstream import Window
    >>> as_json(Windowed("a", Window(0, 10)))
    ['a', 0, 10]
    """
    if isinstance(anything, Windowed):
        return [as_json(anything.key), anything.window.start, anything.window.end]
    return anything
