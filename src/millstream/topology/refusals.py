"""What can't be part of a topology: found where it is given, or at `build()` with the line that gave it.

Each function answers what is wrong and what to do about it, None if nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, isclass, signature
from typing import Any, Final

from millstream.config import check_backend
from millstream.errors import ConfigError, TopologyError
from millstream.names import HOW_TO_NAME, is_topic_name
from millstream.serdes import of
from millstream.serdes.api import short_repr
from millstream.state.specs import Store, StoreBuilder

__all__ = [
    "Refusal",
    "function_refusal",
    "partitioner_refusal",
    "refuse",
    "serde_refusal",
    "store_builder_refusal",
    "supplier_refusal",
    "topic_refusal",
]

Refusal = tuple[str, str]
"""What is wrong, and the remedy."""

_PROCESSOR: Final = "pass a class, or a function without parameters that makes a new instance"


def refuse(found: Refusal | None) -> None:
    """Raise what was found, if anything was."""
    if found is not None:
        raise TopologyError(f"{found[0]}. Remedy: {found[1]}")


def topic_refusal(given: object) -> Refusal | None:
    """Why something can't be the name of a topic.

    >>> topic_refusal("orders/eu")
    ("'orders/eu' can't be the name of a topic", "use letters, digits, '.', '_' and '-', at most 249 of ...")
    """
    if is_topic_name(given):
        return None
    return f"{short_repr(given)} can't be the name of a topic", HOW_TO_NAME


def serde_refusal(what: str, given: object) -> Refusal | None:
    """Why something can't be a serde; None says that there is none, and is allowed.

    >>> serde_refusal("value", str)[1].rstrip(".")
    'give one of millstream.serdes (for str: serdes.string) or your own object with both methods'
    """
    if given is None:
        return None
    try:
        of(given)
    except TypeError as error:
        problem, _, remedy = str(error).partition(" Remedy: ")
        return f"{what}={_named(given)}: {problem.rstrip('.')}", remedy.rstrip(".")
    return None


def store_builder_refusal(given: object) -> Refusal | None:
    """Why something is no store that can be added.

    >>> store_builder_refusal("seen")
    ("add_state_store() got 'seen', which is no store", "stores.key_value('seen', ...) makes one; ...")
    """
    if isinstance(given, StoreBuilder):
        for what in ("key", "value"):
            found = serde_refusal(what, getattr(given, what))
            if found is not None:
                return f"store {given.name!r}: {found[0]}", found[1]
        try:
            check_backend("lmdb" if given.backend is None else given.backend)
        except ConfigError as error:
            problem, _, remedy = str(error).partition(" Remedy: ")
            return f"store {given.name!r}: {problem.rstrip('.')}", remedy.rstrip(".")
        return None
    name = given.name if isinstance(given, Store) else given if isinstance(given, str) else "name"
    return (
        f"add_state_store() got {short_repr(given)}, which is no store",
        f"stores.key_value({name!r}, ...) makes one; Store(...) is for store= of the operators",
    )


def supplier_refusal(given: Any, method: str = "process") -> Refusal | None:
    """Why something does not make processors, or transformers.

    >>> supplier_refusal(lambda record: record)
    ('a lambda takes (record), but a supplier is called without arguments', 'pass a class, or a function ...')
    """
    found = _call_refusal(given, ())
    if found is not None:
        return f"{_called(given)} takes {found}, but a supplier is called without arguments", _PROCESSOR
    made = given()
    if not callable(getattr(made, method, None)):
        return f"{_called(given)} supplies {short_repr(made)}, which has no {method}()", _PROCESSOR
    return None


def function_refusal(what: str, given: Any, *parameters: str, hint: str | None = None) -> Refusal | None:
    """Why something can't be called with some parameters; `hint` is what would do with another number.

    >>> function_refusal("map_values()", lambda key, value: value, "value", hint="map_values_with_key()")
    ('map_values() calls its function with (value), but a lambda takes (key, value)', 'map_values_with_key()')
    """
    listed = ", ".join(parameters)
    example = f"a function, as in lambda{' ' if listed else ''}{listed}: ..."
    if not callable(given):
        kind = "an expression, which has no meaning there" if _is_expression(given) else _shown(given)
        return f"{what} takes a function of ({listed}), but it got {kind}", f"give it {example}"
    takes = _call_refusal(given, parameters)
    if takes is None:
        return None
    remedy = hint if hint is not None else f"give it {example}"
    return f"{what} calls its function with ({listed}), but {_called(given)} takes {takes}", remedy


def partitioner_refusal(given: Any) -> Refusal | None:
    """Why something can't choose partitions; None leaves that to the key.

    >>> partitioner_refusal(lambda key, count: 0)[0]
    'partitioner calls its function with (topic, key, value, partitions), but a lambda takes (key, count)'
    """
    if given is None:
        return None
    return function_refusal("partitioner", given, "topic", "key", "value", "partitions")


def _call_refusal(given: Callable[..., Any], arguments: tuple[str, ...]) -> Signature | None:
    """The parameters of a function that can't be called with some arguments; None if it can, or who knows."""
    try:
        found = signature(given)
    except (TypeError, ValueError):  # of something written in C
        return None
    try:
        found.bind(*arguments)
    except TypeError:
        return found.replace(
            parameters=[one.replace(annotation=one.empty) for one in found.parameters.values()],
            return_annotation=Signature.empty,
        )
    return None


def _is_expression(given: object) -> bool:
    return type(given).__module__.startswith("polars.") or type(given).__name__ == "RecordColumn"


def _named(given: object) -> str:
    return given.__name__ if isclass(given) else short_repr(given)


def _shown(given: object) -> str:
    return f"{short_repr(given)}, which can't be called"


def _called(given: Any) -> str:
    name = getattr(given, "__qualname__", type(given).__qualname__).rpartition("<locals>.")[2]
    return "a lambda" if name == "<lambda>" else f"{name!r}"
