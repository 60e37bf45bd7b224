"""A program that can't be sent to workers: the operator, its line and what it captures are named."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from inspect import currentframe
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millstream import Processor, Streams, StreamsBuilder, StreamsConfig, serdes
from millstream.errors import ConfigError, MillstreamError, TopologyError

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def line_below(count: int = 1) -> str:
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + count}"


def refused(builder: StreamsBuilder, folder: Path, config: StreamsConfig | None = None) -> MillstreamError:
    config = StreamsConfig(state_dir=folder / "state") if config is None else config
    before = SparkContext._active_spark_context
    app = Streams(builder.build(), app_id="bad", log=folder / "log", config=config)
    with pytest.raises(MillstreamError) as caught:
        app.run(until="caught-up")
    assert "Traceback" not in str(caught.value)
    assert SparkContext._active_spark_context is before  # no Spark was started for it
    assert not (folder / "state").exists()
    return caught.value


def test_a_captured_connection_is_named_with_operator_and_line(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:")

    def enrich(text: str) -> str:
        return str(connection.execute("select ?", [text]).fetchone()[0])

    builder = StreamsBuilder()
    line = line_below()
    builder.stream("in", **STRINGS).map_values(enrich, name="enrich").to("out")
    error = refused(builder, tmp_path)
    assert isinstance(error, TopologyError)
    assert str(error).startswith(
        "operator 'enrich' can't be sent to Spark's workers: function 'enrich' captures 'connection', a "
        "sqlite3.Connection (TypeError: cannot pickle 'sqlite3.Connection' object): it belongs to this "
        "process"
    )
    assert "Remedy: open it where it is used: in the function itself, or in init() of a Processor" in str(
        error
    )
    assert str(error).endswith(f"\n  at {line}")


def a_lambda(builder: StreamsBuilder) -> None:
    mine = threading.Lock()
    builder.stream("in", **STRINGS).filter(lambda _, __: mine.locked(), name="guard")


def a_default(builder: StreamsBuilder) -> None:
    def keep(_: str, __: str, guard: Any = threading.Lock()) -> bool:  # noqa: B008 - that is the mistake
        return bool(guard.locked())

    builder.stream("in", **STRINGS).filter(keep, name="guard")


def a_method(builder: StreamsBuilder) -> None:
    class Guard:
        def __init__(self) -> None:
            self.mine = threading.Lock()

        def keep(self, _: str, __: str) -> bool:
            return self.mine.locked()

    builder.stream("in", **STRINGS).filter(Guard().keep, name="guard")


def a_supplier(builder: StreamsBuilder) -> None:
    mine = threading.Lock()

    class Guard(Processor[str, str, str, str]):
        def process(self, record: Any) -> None:
            if mine.locked():
                self.context.forward(record)

    builder.stream("in", **STRINGS).process(Guard, name="guard")


def an_aggregator(builder: StreamsBuilder) -> None:
    mine = threading.Lock()
    builder.stream("in", **STRINGS).group_by_key().aggregate(
        lambda: 0, lambda _, __, n: n + mine.locked(), name="guard"
    )


@pytest.mark.parametrize(
    ("build", "captures"),
    [
        (a_lambda, "a lambda captures 'mine', a _thread.lock"),
        (a_default, "function 'keep' captures 'guard', a _thread.lock"),
        (a_method, "captures 'mine', a _thread.lock"),
        (a_supplier, "captures 'mine', a _thread.lock"),
        (an_aggregator, "a lambda captures 'mine', a _thread.lock"),
    ],
)
def test_whatever_way_it_is_captured_it_is_named(
    build: Callable[[StreamsBuilder], None], captures: str, tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    build(builder)
    message = str(refused(builder, tmp_path))
    assert message.startswith("operator 'guard' can't be sent to Spark's workers: ")
    assert captures in message


def test_a_captured_spark_session_is_told_to_stay(tmp_path: Path) -> None:
    spark = SparkSession.__new__(SparkSession)
    context = SparkContext.__new__(SparkContext)
    spark._sc = context  # as a session has it
    for name, captured in (("spark", spark), ("context", context)):
        builder = StreamsBuilder()
        stream = builder.stream("in", **STRINGS)
        if name == "spark":
            stream.map_values(lambda text: spark.sql(text).count(), name="ask")
        else:
            stream.map_values(lambda text: context.parallelize([text]).count(), name="ask")
        message = str(refused(builder, tmp_path))
        kind = f"{type(captured).__module__}.{type(captured).__qualname__}"
        assert (
            f"operator 'ask' can't be sent to Spark's workers: a lambda captures {name!r}, a {kind}"
            in message
        )
        assert "Spark's own objects stay in the driver's process. Remedy: collect() what" in message


def test_what_belongs_to_no_operator_is_named_too(tmp_path: Path) -> None:
    mine = threading.Lock()

    def handle(context: Any, error: Exception) -> Any:
        del context, error
        return mine.locked()

    def partition(topic: str, key: str, value: str, count: int) -> int:
        del topic, key, value
        return mine.locked() % count

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).to("out")
    config = StreamsConfig(processing_handler=handle, state_dir=tmp_path / "state")
    error = refused(builder, tmp_path, config)
    assert isinstance(error, ConfigError)
    assert str(error).startswith(
        "the setting processing_handler can't be sent to Spark's workers: function 'handle' captures 'mine'"
    )
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).to("out", partitioner=partition, name="sink")
    assert str(refused(builder, tmp_path)).startswith("the partitioner of sink 'sink' can't be sent")


def test_what_a_class_holds_is_named(tmp_path: Path) -> None:
    class Totals:
        lock = threading.Lock()

        def __call__(self, text: str) -> str:
            return text

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).map_values(Totals(), name="total").to("out")
    assert "class 'Totals' captures 'lock', a _thread.lock (" in str(refused(builder, tmp_path))


@pytest.mark.parametrize("first_line", ["", "from __future__ import annotations"])
def test_classes_of_the_started_program_reach_workers(tmp_path: Path, first_line: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(first_line + _PROGRAM)
    packed = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True).stdout
    worker = [sys.executable, "-c", _WORKER, *packed.split()]
    assert subprocess.run(worker, capture_output=True, text=True, check=True).stdout == "True 2\n"


_PROGRAM = """
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, NotRequired, TypedDict

from millstream import serdes
from millstream.engine.spark.packing import dumped

class Kind(Enum):
    BOOK = "book"

class Rank(IntEnum):
    FIRST = 1

class Place(NamedTuple):
    street: str

class Note(TypedDict):
    text: str
    place: NotRequired[Place]

@dataclass(frozen=True)
class Item:
    kind: Kind
    notes: list[Note]

@dataclass(frozen=True)
class Line(Item):
    rank: Rank
    other: Item | None

serde = serdes.json(Line)
data = serde.serialize(Line(Kind.BOOK, [{"text": "a"}], Rank.FIRST, Item(Kind.BOOK, [])))
serde.deserialize(data)
packed = dumped((serde, lambda line: Rank.FIRST + len(line.notes)))
serde.deserialize(data)
print(packed.hex(), data.hex())
"""
_WORKER = """
import sys
from pyspark import cloudpickle
serde, total = cloudpickle.loads(bytes.fromhex(sys.argv[1]))
data = bytes.fromhex(sys.argv[2])
line = serde.deserialize(data)
print(serde.serialize(line) == data, total(line))
"""
