"""Golden files: what Kafka Streams itself did with a topology, and how to ask Millstream for the same.

A file is written by `tests/oracle`, whose README describes the format. Here it is read into frozen values,
and played on `TopologyTestDriver`. Both the expected and the actual run are a list of `Step`, so a test
compares equal things, and `str()` of each is its line in the file.

Kafka's test driver gives the order of outputs across topics, ours per topic. `Step.by_topic` forgets the
difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import UUID

from millstream import Record, Topology, Windowed, serdes
from millstream.errors import MillstreamError
from millstream.testing import TopologyTestDriver

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Literal: TypeAlias = str | int | float | bool | dict[str, Any] | None

SERDES: dict[str, Any] = {
    "string": serdes.string,
    "int32": serdes.int32,
    "int64": serdes.int64,
    "double": serdes.double,
    "boolean": serdes.boolean,
    "uuid": serdes.uuid,
    "bytes": serdes.bytes,
}

_WINDOWED = re.compile(r"(time|session)_windowed\((\w+)(?:,(\d+))?\)")

_FROM_LITERAL: dict[str, Callable[[Any], Any]] = {"uuid": UUID, "bytes": bytes.fromhex}


def serde(name: str) -> Any:
    """The serde that a file calls by this name."""
    if not (windowed := _WINDOWED.fullmatch(name)):
        return SERDES[name]
    inner = SERDES[windowed[2]]
    return serdes.time_windowed(inner, int(windowed[3])) if windowed[3] else serdes.session_windowed(inner)


def literal(value: Any) -> Literal:
    """A value as a file spells it: bytes are hexadecimal, a UUID is its text, a key in a window an object."""
    if isinstance(value, Windowed):
        return {"key": literal(value.key), "start": value.window.start, "end": value.window.end}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    assert value is None or isinstance(value, str | int | float | bool), f"no literal for {value!r}"
    return value


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and the names of its serdes."""

    name: str
    key: str
    value: str

    def key_of(self, spelled: Literal) -> Any:
        return self._value(self.key, spelled)

    def value_of(self, spelled: Literal) -> Any:
        return self._value(self.value, spelled)

    @staticmethod
    def _value(serde: str, spelled: Literal) -> Any:
        return None if spelled is None else _FROM_LITERAL.get(serde, lambda same: same)(spelled)

    def __str__(self) -> str:
        return f"{self.name} {self.key} {self.value}"


@dataclass(frozen=True, slots=True)
class Line:
    """One record of one topic, keys and values as literals."""

    topic: str
    key: Literal
    value: Literal
    timestamp: int
    headers: Headers = ()

    @classmethod
    def of(cls, topic: str, record: Record[Any, Any]) -> Line:
        return cls(topic, literal(record.key), literal(record.value), record.timestamp, record.headers)

    def __str__(self) -> str:
        text = f"{self.topic} {json.dumps(self.key)} {json.dumps(self.value)} @{self.timestamp}"
        if not self.headers:
            return text
        pairs = [[name, None if data is None else data.decode()] for name, data in self.headers]
        return f"{text} {json.dumps(pairs)}"


@dataclass(frozen=True, slots=True)
class Pipe:
    """A record goes in."""

    line: Line

    def __str__(self) -> str:
        return f"pipe {self.line}"


@dataclass(frozen=True, slots=True)
class WallClock:
    """Time passes."""

    advance_ms: int

    def __str__(self) -> str:
        return f"wallclock +{self.advance_ms}"


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is done to a topology, and what comes of it: outputs, or an error and the end."""

    action: Pipe | WallClock
    outputs: tuple[Line, ...] = ()
    fails: bool = False

    def by_topic(self) -> Step:
        """The same with the outputs of each topic together."""
        return replace(self, outputs=tuple(sorted(self.outputs, key=lambda line: line.topic)))

    def __str__(self) -> str:
        action = f"error {self.action}" if self.fails else str(self.action)
        return "\n".join([action, *(f"  -> {line}" for line in self.outputs)])


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a store; the timestamp is None in a plain store."""

    key: Literal
    value: Literal
    timestamp: int | None = None

    def __str__(self) -> str:
        text = f"{json.dumps(self.key)} {json.dumps(self.value)}"
        return text if self.timestamp is None else f"{text} @{self.timestamp}"


@dataclass(frozen=True, slots=True)
class Dump:
    """All rows of a store, in the order in which `all()` gives them."""

    name: str
    kind: str
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        return "\n".join([f"store {self.name} {self.kind}", *(f"  {entry}" for entry in self.entries)])


@dataclass(frozen=True, slots=True)
class Golden:
    """One file."""

    name: str
    inputs: tuple[Topic, ...]
    outputs: tuple[Topic, ...]
    refused: bool
    script: tuple[Step, ...]
    stores: tuple[Dump, ...]
    description: str

    @property
    def completes(self) -> bool:
        """Whether the topology runs to the end of its script."""
        return not self.refused and not any(step.fails for step in self.script)

    @property
    def keys(self) -> list[str]:
        """All text keys of records that went in or came out."""
        return sorted({line.key for line in self._lines if isinstance(line.key, str)})

    @property
    def times(self) -> list[int]:
        """All timestamps of records that went in or came out."""
        return sorted({line.timestamp for line in self._lines})

    @property
    def _lines(self) -> Iterator[Line]:
        for step in self.script:
            if isinstance(step.action, Pipe):
                yield step.action.line
            yield from step.outputs

    def __str__(self) -> str:
        """The file's text, without its comments."""
        topics = [f"input {topic}" for topic in self.inputs] + [f"output {topic}" for topic in self.outputs]
        sections = [("topics", topics)]
        if not self.refused:
            sections.append(("script", [str(step) for step in self.script]))
        if self.completes:
            sections.append(("stores", [str(dump) for dump in self.stores]))
        if self.refused:
            sections.append(("refused", []))
        blocks = ["\n".join([f"[{title}]", *lines, ""]) for title, lines in sections]
        text = "\n".join([f"case {self.name}\n", *blocks])
        return text if self.refused else f"{text}\n[topology]\n{self.description}"


def parse(text: str) -> Golden:
    """Read a file."""
    head, _, description = text.partition("\n[topology]\n")
    sections = _sections(head)
    topics = [(line.split()[0], Topic(*line.split()[1:])) for line in sections["topics"]]
    return Golden(
        name=sections[""][0].removeprefix("case "),
        inputs=tuple(topic for role, topic in topics if role == "input"),
        outputs=tuple(topic for role, topic in topics if role == "output"),
        refused="refused" in sections,
        script=tuple(_steps(sections.get("script", []))),
        stores=tuple(_dumps(sections.get("stores", []))),
        description=description,
    )


def without_comments(text: str) -> str:
    """A file's text without the exception classes that it mentions."""
    return re.sub(r"^# .*\n|  # .*$", "", text, flags=re.MULTILINE)


def play(golden: Golden, topology: Topology) -> tuple[list[Step], list[Dump]]:
    """Do to the topology what the file did, and see what comes of it. The stores are those of the file."""
    with TopologyTestDriver(topology, start_ms=0) as driver:
        steps = list(_played(golden, driver))
        if steps and steps[-1].fails:
            return steps, []
        return steps, [_dumped(dump, golden, driver) for dump in golden.stores]


def _played(golden: Golden, driver: TopologyTestDriver) -> Iterator[Step]:
    topics = {topic.name: topic for topic in golden.inputs}
    inputs = {
        name: driver.input_topic(name, key=serde(topic.key), value=serde(topic.value))
        for name, topic in topics.items()
    }
    outputs = {
        topic.name: driver.output_topic(topic.name, key=serde(topic.key), value=serde(topic.value))
        for topic in golden.outputs
    }
    for step in golden.script:
        try:
            if isinstance(step.action, WallClock):
                driver.advance_wall_clock(step.action.advance_ms)
            else:
                line = step.action.line
                topic = topics[line.topic]
                key, value = topic.key_of(line.key), topic.value_of(line.value)
                inputs[line.topic].pipe(key, value, timestamp=line.timestamp, headers=line.headers)
        except MillstreamError:
            if not step.fails:
                raise
            yield Step(step.action, fails=True)
            return
        produced = [Line.of(name, record) for name, topic in outputs.items() for record in topic.read_all()]
        yield Step(step.action, tuple(produced))


def _dumped(expected: Dump, golden: Golden, driver: TopologyTestDriver) -> Dump:
    find: dict[str, Callable[[str], Any]] = {
        "plain": driver.store,
        "timestamped": driver.timestamped_store,
        "window": driver.timestamped_window_store,
        "session": driver.session_store,
        "versioned": driver.versioned_store,
    }
    store = find[expected.kind](expected.name)
    return Dump(expected.name, expected.kind, tuple(entries(expected.kind, store, golden)))


def entries(kind: str, store: Any, golden: Golden) -> list[Entry]:
    """The rows of a store as a file lists them."""
    if kind == "versioned":
        return list(_versions(store, golden))
    with store.fetch_range(None, None) if kind == "session" else store.all() as rows:
        if kind in {"timestamped", "window"}:
            found = [Entry(literal(key), literal(cell.value), cell.timestamp) for key, cell in rows]
        else:
            found = [Entry(literal(key), literal(value)) for key, value in rows]
    return sorted(found, key=_by_key_and_window) if kind in {"window", "session"} else found


def _by_key_and_window(entry: Entry) -> tuple[str, int, int]:
    assert isinstance(entry.key, dict)
    return json.dumps(entry.key["key"]), entry.key["start"], entry.key["end"]


def _versions(store: Any, golden: Golden) -> Iterator[Entry]:
    """What a versioned store answers for each key from which time on."""
    for key in golden.keys:
        last = None
        for time in golden.times:
            found = store.get(key, as_of=time)
            answer = None if found is None else Entry(key, literal(found.value), found.timestamp)
            if answer != last:
                yield Entry(key, None, time) if answer is None else answer
            last = answer


def _sections(text: str) -> dict[str, list[str]]:
    """The lines below each title; those above the first have the title ""."""
    lines: list[str] = []
    sections = {"": lines}
    for line in text.splitlines():
        if title := re.fullmatch(r"\[(\w+)\]", line):
            lines = sections[title[1]] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


def _steps(lines: list[str]) -> Iterator[Step]:
    for head, body in _blocks(lines):
        spelled = head.removeprefix("error ")
        reader = _Reader(spelled)
        kind = reader.word()
        action = Pipe(reader.line()) if kind == "pipe" else WallClock(int(reader.word()))
        outputs = tuple(_Reader(line.removeprefix("-> ")).line() for line in body)
        yield Step(action, outputs, fails=head != spelled)


def _dumps(lines: list[str]) -> Iterator[Dump]:
    for head, body in _blocks(lines):
        _, name, kind = head.split()
        yield Dump(name, kind, tuple(_Reader(line).entry() for line in body))


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A line and the indented ones below it."""
    blocks: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("  "):
            blocks[-1][1].append(line.strip())
        else:
            blocks.append((line, []))
    yield from blocks


class _Reader:
    """Reads words and JSON literals off the front of a line."""

    def __init__(self, text: str) -> None:
        self.rest = text

    def word(self) -> str:
        word, _, self.rest = self.rest.partition(" ")
        return word

    def literal(self) -> Any:
        value, end = json.JSONDecoder().raw_decode(self.rest)
        self.rest = self.rest[end:].lstrip()
        return value

    def timestamp(self) -> int:
        return int(self.word().removeprefix("@"))

    def headers(self) -> Headers:
        if not self.rest.startswith("["):
            return ()
        return tuple((name, None if text is None else text.encode()) for name, text in self.literal())

    def line(self) -> Line:
        return Line(self.word(), self.literal(), self.literal(), self.timestamp(), self.headers())

    def entry(self) -> Entry:
        return Entry(self.literal(), self.literal(), self.timestamp() if self.rest else None)
