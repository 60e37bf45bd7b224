"""The functions that random topologies are made of, as data: dicts that JSON can carry.

`Functions.java` in `tests/oracle` is the same in Java, line by line. Keys are strings or windowed strings,
values are whole numbers or strings, and either may be None. Every function is total, and numbers stay so
small that a Java long holds them.
"""

from __future__ import annotations

from typing import Any

from millstream import Windowed

MODULUS = 9973
TAIL = 20

Function = dict[str, Any]
"""The parameters of a function."""


def number(anything: Any) -> int:
    """Anything as a number.

    >>> number("a"), number(None), number(7)
    (97, 0, 7)
    """
    if anything is None:
        return 0
    if isinstance(anything, int):
        return anything
    if isinstance(anything, Windowed):
        window = anything.window
        return number(anything.key) + window.start % MODULUS + window.end % MODULUS
    return sum(map(ord, anything))


def holds(f: Function, key: Any, value: Any) -> bool:
    """A predicate: true for some keys and values."""
    found = number(value) + (number(key) if f["key"] else 0)
    return bool(found % f["mod"] < f["below"])


def new_key(f: Function, key: Any, value: Any) -> str | None:
    """Another key, made of the value; None if `null` is hit.

    >>> new_key({"mod": 3, "null": -1, "key": False}, "a", 5)
    'k2'
    """
    chosen = (number(value) + (number(key) % 3 if f["key"] else 0)) % f["mod"]
    return None if chosen == f["null"] else f"k{chosen}"


def new_value(f: Function, key: Any, value: Any) -> Any:
    """Another value; None if `null` is hit.

    >>> new_value({"type": "int64", "a": 3, "b": 1, "null": -1, "key": False}, "a", 5)
    16
    """
    made = (number(value) * f["a"] + f["b"] + (number(key) if f["key"] else 0)) % MODULUS
    if made % 5 == f["null"]:
        return None
    return _tail(f"{_text(value)}.{made % 10}") if f["type"] == "string" else made


def several(f: Function, value: Any) -> list[Any]:
    """No value, or some.

    >>> several({"type": "string", "mod": 3}, "b")
    ['b/0', 'b/1']
    """
    found = number(value)
    copies = range(found % f["mod"])
    if f["type"] == "string":
        return [_tail(f"{_text(value)}/{copy}") for copy in copies]
    return [(found * 3 + copy) % MODULUS for copy in copies]


def joined(f: Function, key: Any, left: Any, right: Any) -> Any:
    """A joiner, and with a key of None one that has none. None if `null` is hit.

    >>> joined({"type": "string", "a": 1, "b": 2, "null": -1}, None, 5, None)
    '5&~'
    """
    made = (_or(left, 7) * f["a"] + _or(right, 11) * f["b"] + number(key)) % MODULUS
    if made % 5 == f["null"]:
        return None
    return _tail(f"{_text(left)}&{_text(right)}") if f["type"] == "string" else made


def fold(f: Function, key: Any, value: Any, aggregate: Any) -> Any:
    """An aggregator, and with a key of None a reducer. None if `null` is hit.

    >>> fold({"kind": "concat", "null": -1}, "a", 5, "x")
    'x+5'
    """
    made = _folded(f, key, value, aggregate)
    return None if number(made) % 7 == f["null"] else made


def _folded(f: Function, key: Any, value: Any, aggregate: Any) -> Any:
    before, now = number(aggregate), number(value)
    match f["kind"]:
        case "concat":
            return _tail(f"{_text(aggregate)}+{_text(value)}")
        case "uncat":
            return _tail(f"{_text(aggregate)}-{_text(value)}")
        case "sum":
            return before + now
        case "minus":
            return before - now
        case "max":
            return max(before, now)
        case "min":
            return min(before, now)
        case "last":
            return now
        case "mix":
            return (before * f["a"] + now + number(key)) % MODULUS
    raise ValueError(f"no function {f}")


def _or(value: Any, other: int) -> int:
    return other if value is None else number(value)


def _text(value: Any) -> str:
    return "~" if value is None else str(value)


def _tail(text: str) -> str:
    return text[-TAIL:]
