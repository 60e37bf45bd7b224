"""`docs/kafka_streams_map.md` is complete, and what it says is here is here."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import millstream
from millstream import testing
from millstream.state.stores import key_value as keyvalue

ROOT = Path(__file__).parents[1]
MAP = ROOT / "docs" / "kafka_streams_map.md"
KAFKA = Path(__file__).with_name("kafka_streams_4_1_0.txt")

STATUSES = ("planned", "no", "a callable")
HOMES: tuple[Any, ...] = (millstream, testing, keyvalue)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: names of Kafka Streams, what they are here, and notes."""

    names: tuple[str, ...]
    here: str
    notes: str

    @property
    def found_here(self) -> tuple[str, ...]:
        return code_spans(self.here)


def code_spans(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", text))


def rows() -> Iterator[Row]:
    """All rows of the map. A heading with a class in it is the class of the rows below."""
    heading = ""
    for line in MAP.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = "".join(code_spans(line))
        elif line.startswith("| `"):
            kafka, here, notes = (cell.strip() for cell in line.strip("|").split(" | "))
            owner = re.match(r"`([\w.]+)`:", kafka)
            members = code_spans(kafka)[1 if owner else 0 :]
            prefix = owner[1] if owner else heading
            yield Row(tuple(f"{prefix}.{name}" if prefix else name for name in members), here, notes)


def kafkas_names() -> set[str]:
    """Every `Class.member` of Kafka Streams, and classes without members of their own."""
    lines = [line for line in KAFKA.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    names = {cls: members.split() for cls, members in (line.split(":") for line in lines)}
    return {f"{cls}.{member}" for cls, members in names.items() for member in members} | {
        cls for cls, members in names.items() if not members and cls != "StreamsConfig"
    }


def resolve(name: str) -> Any:
    """What a name of the map stands for. Raises AttributeError if there is no such thing."""
    first, *rest = name.split(".")
    home = next((home for home in HOMES if hasattr(home, first)), None)
    thing = getattr(home, first) if home is not None else importlib.import_module(f"millstream.{first}")
    for part in rest:
        thing = member(thing, part)
    return thing


def member(thing: Any, name: str) -> Any:
    if hasattr(thing, name):
        return getattr(thing, name)
    if inspect.ismodule(thing):
        return importlib.import_module(f"{thing.__name__}.{name}")
    if inspect.isclass(thing) and name in attributes_set_by(thing):
        return name
    raise AttributeError(f"{thing!r} has no {name!r}")


def attributes_set_by(cls: type) -> set[str]:
    """What a class sets on `self`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(dedent(inspect.getsource(cls))))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def mentions() -> list[str]:
    """All names of ours in the map: the column `here`, and code in the notes that begins like one."""
    ours = re.compile(r"(?:[A-Z]\w+|serdes|stores|handlers|timestamps|errors)\.\w+.*")
    found = {name for row in rows() for name in row.found_here}
    found |= {name for row in rows() for name in code_spans(row.notes) if ours.fullmatch(name)}
    return sorted(found - GONE_FROM_KAFKA)


GONE_FROM_KAFKA = {"KStream.transform", "KStream.transformValues"}


@pytest.mark.parametrize("mention", mentions())
def test_what_the_map_names_exists(mention: str) -> None:
    name, _, arguments = mention.partition("(")
    thing = resolve(name)
    parameters = inspect.signature(thing).parameters if arguments else {}
    assert [word for word in re.findall(r"(\w+)=", arguments) if word not in parameters] == []


def test_every_class_and_method_of_kafka_streams_is_in_the_map() -> None:
    assert set() == kafkas_names() - {name for row in rows() for name in row.names}


def test_the_map_names_nothing_that_kafka_streams_does_not_have() -> None:
    named = {name for row in rows() for name in row.names if not name.startswith("StreamsConfig.")}
    assert set() == named - kafkas_names()


def test_every_name_is_in_the_map_once() -> None:
    counted = Counter(name for row in rows() for name in row.names)
    assert [name for name, times in counted.items() if times > 1] == []


def test_every_row_says_what_is_here_or_why_it_is_not() -> None:
    for row in rows():
        assert row.found_here or row.here in STATUSES, row
        assert row.here != "no" or row.notes, f"no reason: {row}"
