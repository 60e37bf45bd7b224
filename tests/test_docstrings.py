"""Every public name has a docstring with an example. The examples run as doctests.

Public is what `millstream.__all__` and `millstream.testing.__all__` name, what the modules among them name,
and the objects that a user is handed: stores, iterators, metrics. A method's example may stand in its own
docstring or in that of a class that has it, if it uses the method there. A method that means what its base
class says needs none.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import millstream
from millstream import testing
from millstream.instances import InstancesOfStreams
from millstream.state.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.task.metrics import Metrics
from millstream.testing.stores import PlainValues

HANDED_OUT = (KeyValueStore, TimestampedKeyValueStore, KeyValueIterator, PlainValues, Metrics)

OPERATORS = "each of its operators has an example"
FOR_THE_DSL = "the DSL calls it, users do not"
ENUMERATION = "an enumeration: there is nothing to call"

IN_INSTANCES = "needs several hosts: docs/instances.md shows it"
WITHOUT_EXAMPLE = {
    "Answer": ENUMERATION,
    "BranchedKStream": "made by KStream.split, which shows it",
    "BranchedKStream.of": FOR_THE_DSL,
    "CogroupedKStream": OPERATORS,
    "GlobalKTable": "made by StreamsBuilder.global_table, which shows it",
    "KGroupedStream": OPERATORS,
    "KGroupedStream.repartitioned": FOR_THE_DSL,
    "KGroupedTable": OPERATORS,
    "KStream": OPERATORS,
    "KStream.at_node": FOR_THE_DSL,
    "KTable": OPERATORS,
    "State": ENUMERATION,
    "StoreBuilder": "made by stores.key_value and its like, which show it",
    "Topology.add_global_operator": FOR_THE_DSL,
    "Topology.add_internal_topic": FOR_THE_DSL,
    "Topology.add_operator": FOR_THE_DSL,
    "Topology.add_repartition_source": FOR_THE_DSL,
    "Topology.add_row_serdes": FOR_THE_DSL,
    "Topology.add_sink_node": FOR_THE_DSL,
    "Topology.add_table_operator": FOR_THE_DSL,
    "Topology.connect": FOR_THE_DSL,
    "Topology.copartition": FOR_THE_DSL,
    "handlers.ErrorContext": "made by the task; docs/errors_and_handlers.md shows a handler that reads one",
    "handlers.ErrorKind": ENUMERATION,
    "handlers.Verdict": ENUMERATION,
    "serdes.BaseSerde.bind": "the engine calls it; serdes.auto shows what it is for",
    "serdes.BaseSerde.deserialize_many": "the engine calls it; serialize_many is shown",
    "serdes.NullableSerde": "made by serdes.nullable, which shows it",
    "serdes.SessionWindowedSerde": "made by serdes.session_windowed, which shows it",
    "serdes.TimeWindowedSerde": "made by serdes.time_windowed, which shows it",
    "stores.StoreKind": ENUMERATION,
    "Streams.drain": IN_INSTANCES,
    "Streams.on_rebalance": IN_INSTANCES,
    "Streams.undrain": IN_INSTANCES,
}


def public_names() -> Iterator[tuple[str, Any]]:
    """All public classes, functions and modules' members, each under the name that a user writes."""
    for name in millstream.__all__:
        thing = getattr(millstream, name)
        if isinstance(thing, ModuleType):
            names = getattr(thing, "__all__", None) or [own for own in vars(thing) if not own.startswith("_")]
            yield from ((f"{name}.{inner}", getattr(thing, inner)) for inner in names)
        else:
            yield name, thing
    yield from ((f"testing.{name}", getattr(testing, name)) for name in testing.__all__)
    yield from ((cls.__name__, cls) for cls in HANDED_OUT)


def ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("millstream")


def is_part(base: type) -> bool:
    """Whether a base class is there only to be a part of others."""
    return base is InstancesOfStreams or base.__name__.startswith("_")


def methods(cls: type) -> Iterator[tuple[str, FunctionType]]:
    """The public methods and properties of a class, and of the base classes that are parts of it."""
    own = [base for base in cls.__mro__ if ours(base) and (base is cls or is_part(base))]
    for name, member in (item for base in own for item in vars(base).items()):
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and isinstance(function, FunctionType) and ours(function):
            yield name, function


def examples(thing: Any) -> str:
    """The example lines of a docstring of its own."""
    return "\n".join(
        re.findall(r"^\s*(?:>>>|\.\.\.).*$", getattr(thing, "__doc__", None) or "", re.MULTILINE)
    )


def is_shown(cls: type, name: str, function: FunctionType) -> bool:
    by_class = re.search(rf"(?:\.|def ){name}\b", examples(cls))
    overrides = name in vars(cls) and any(hasattr(base, name) for base in cls.__mro__[1:] if ours(base))
    return bool(examples(function) or by_class or overrides)


def names_without_example() -> set[str]:
    shown: dict[Any, bool] = {}
    names: dict[Any, str] = {}
    for name, thing in public_names():
        if not ours(thing) or not isinstance(thing, type | FunctionType):
            continue  # a constant, or an alias of a type
        if isinstance(thing, type) and issubclass(thing, Exception):
            continue  # raised, not called; errors.py draws the tree
        names.setdefault(thing, name)
        shown[thing] = bool(examples(thing))
        if isinstance(thing, FunctionType):
            continue
        for own, function in methods(thing):
            names.setdefault(function, f"{name}.{own}")
            shown[function] = shown.get(function, False) or is_shown(thing, own, function)
    return {names[thing] for thing, is_there in shown.items() if not is_there}


def test_every_public_name_has_an_example_that_runs() -> None:
    assert set() == names_without_example() - WITHOUT_EXAMPLE.keys()


def test_no_exception_to_the_rule_is_out_of_date() -> None:
    assert set() == WITHOUT_EXAMPLE.keys() - names_without_example()


def test_every_public_name_has_a_docstring() -> None:
    undocumented = {
        name
        for name, thing in public_names()
        if ours(thing) and isinstance(thing, type | FunctionType) and not inspect.getdoc(thing)
    }
    assert set() == undocumented


def test_every_public_method_has_a_docstring_of_its_own_or_of_a_base_class() -> None:
    modules = [
        import_module(found.name) for found in pkgutil.walk_packages(millstream.__path__, "millstream.")
    ]
    classes = {
        cls
        for module in modules
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__ and not cls.__name__.startswith("_")
    }
    undocumented = {
        f"{cls.__module__}.{cls.__name__}.{name}"
        for cls in classes
        for name, _ in methods(cls)
        if name in vars(cls) and not inspect.getdoc(getattr(cls, name))
    }
    assert set() == undocumented
