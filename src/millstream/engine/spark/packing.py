"""A program as Spark moves it, and who is to blame for one that can't be moved.

User functions are lambdas and closures, which only Spark's own serializer takes: with all that they capture.
They travel in Spark's closures and broadcasts and are never stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from io import BytesIO
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, get_type_hints

from pyspark import cloudpickle

from millstream.engine.program import Program
from millstream.errors import ConfigError, TopologyError
from millstream.topology.nodes import ProcessorNode, SinkNode, SourceNode

__all__ = ["dumped", "pack", "unpack"]

_DEEPEST: Final = 20
_NOTES: Final = "__msgspec_cache__"
_OF_EVERY_CLASS: Final = ("__dict__", "__weakref__")
_OUTSIDE: Final = (
    "it belongs to this process (a connection, a lock, an open file). Remedy: open it where it is used: in "
    "the function itself, or in init() of a Processor"
)
_SPARK: Final = (
    "Spark's own objects stay in the driver's process. Remedy: collect() what the function needs before, "
    "and let it capture that; or read Spark's data as a topic"
)


def pack(program: Program) -> bytes:
    """The bytes of a program. Raises an error that names the operator, its line and what it captures."""
    try:
        return dumped(program)
    except Exception as error:  # noqa: BLE001 - what an object raises that can't be pickled
        raise _refusal(program, error) from None


def unpack(packed: bytes) -> Program:
    """The program again. Only ever called on what this application's own driver has packed."""
    program: Program = cloudpickle.loads(packed)
    return program


def dumped(given: Any) -> bytes:
    """The bytes of anything that Spark's serializer takes, and of what serdes of JSON have looked at.

    >>> from dataclasses import dataclass
    >>> from millstream import serdes
    >>> serde = serdes.json(dataclass(type("Order", (), {"__annotations__": {"amount": int}})))
    >>> cloudpickle.loads(dumped(serde)).deserialize(b'{"amount": 3}').amount
    3
    """
    with BytesIO() as packed:
        _Pickler(packed).dump(given)
        return packed.getvalue()


class _Pickler(cloudpickle.CloudPickler):
    """Spark's serializer, for classes that msgspec has looked at.

    Classes of the program that was started, and of functions, are moved with all their attributes. What
    msgspec notes on them stays here, it looks at them again there; but there it can't find what the names in
    annotations mean, so the types themselves are moved.
    """

    def reducer_override(self, given: Any) -> Any:
        """How a class is moved, as Spark's serializer knows it."""
        reduced = super().reducer_override(given)
        if isinstance(given, type) and _NOTES in vars(given) and isinstance(reduced, tuple):
            attributes = reduced[2][0]
            del attributes[_NOTES]
            attributes["__annotations__"] = _annotations(given)
        return reduced


def _annotations(given: type) -> dict[str, Any]:
    found = get_type_hints(given, include_extras=True)
    return {name: found[name] for name in vars(given).get("__annotations__", {})}


def _refusal(program: Program, error: Exception) -> Exception:
    for node in program.topology.graph.nodes.values():
        for what, given in _parts(node):
            trail = _trail(given)
            if trail is not None:
                return TopologyError(
                    f"{what} {node.name!r} can't be sent to Spark's workers: {_blamed(trail, error)}.\n"
                    f"  at {node.site}"
                )
    for setting in fields(program.config):
        trail = _trail(getattr(program.config, setting.name))
        if trail is not None:
            return ConfigError(
                f"the setting {setting.name} can't be sent to Spark's workers: {_blamed(trail, error)}."
            )
    for name, store in program.topology.graph.stores.items():
        trail = _trail(store)
        if trail is not None:
            return TopologyError(f"store {name!r} can't be sent to Spark's workers: {_blamed(trail, error)}.")
    return TopologyError(
        f"the program can't be sent to Spark's workers: {type(error).__name__}: {error}. Likely cause: "
        f"something that it captures: {_OUTSIDE}."
    )


def _parts(node: SourceNode | ProcessorNode | SinkNode) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ProcessorNode):
        yield "operator", node.make
        return
    if isinstance(node, SourceNode):
        yield "the timestamp_extractor of source", node.timestamp_extractor
    else:
        yield "the topic extractor of sink", node.extractor
        yield "the partitioner of sink", node.partitioner
    kind = "source" if isinstance(node, SourceNode) else "sink"
    yield f"the key serde of {kind}", node.key
    yield f"the value serde of {kind}", node.value


def _blamed(trail: list[tuple[str, Any]], error: Exception) -> str:
    """What captures what, from the outside to the object that can't be moved."""
    name, culprit = trail[-1]
    kind = type(culprit)
    full = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    owner = next((found for _, found in reversed(trail[:-1]) if _is_named(found)), None)
    holds = f"{_called(owner)} captures {name!r}" if owner is not None and name else f"it holds {name!r}"
    if not name:
        holds = f"it is {culprit!r}"[:200]
    if full.startswith("pyspark."):
        return f"{holds}, a {full}: {_SPARK}"
    try:
        dumped(culprit)
        reason = str(error)
    except Exception as found:  # noqa: BLE001 - see `pack`
        reason = f"{type(found).__name__}: {found}"
    return f"{holds}, a {full} ({reason[:200]}): {_OUTSIDE}"


def _is_named(given: Any) -> bool:
    return isinstance(given, FunctionType | MethodType | type)


def _called(given: Any) -> str:
    name = getattr(given, "__qualname__", type(given).__qualname__)
    what = "class" if isinstance(given, type) else "function"
    return "a lambda" if name.endswith("<lambda>") else f"{what} {name.rpartition('<locals>.')[2]!r}"


def _trail(given: Any, name: str = "", depth: int = 0) -> list[tuple[str, Any]] | None:
    """The way to the innermost object that can't be pickled; None if all can."""
    try:
        dumped(given)
    except Exception:  # noqa: BLE001 - see `pack`
        if depth < _DEEPEST:
            for inner_name, inner in _inside(given):
                found = _trail(inner, inner_name, depth + 1)
                if found is not None:
                    return [(name, given), *found]
        return [(name, given)]
    return None


def _inside(given: Any) -> Iterator[tuple[str, Any]]:
    """What an object captures, by the names that the user knows."""
    if isinstance(given, partial):
        yield from (("", inner) for inner in (given.func, *given.args))
        yield from given.keywords.items()
    elif isinstance(given, MethodType):
        yield "self", given.__self__
        yield "", given.__func__
    elif isinstance(given, FunctionType):
        yield from _captured(given)
    elif isinstance(given, type):
        # Picklers leave the descriptors of these two out.
        yield from ((name, inner) for name, inner in vars(given).items() if name not in _OF_EVERY_CLASS)
    elif is_dataclass(given):
        yield from ((one.name, getattr(given, one.name)) for one in fields(given))
    elif isinstance(given, list | tuple | set | frozenset):
        yield from (("", inner) for inner in given)
    elif isinstance(given, dict):
        yield from ((str(key), inner) for key, inner in given.items())
    elif not type(given).__module__.startswith("pyspark."):
        yield from getattr(given, "__dict__", {}).items()
        yield "", type(given)


def _captured(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(names[len(names) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)
