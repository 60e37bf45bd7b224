"""What a new user gets wrong: one message each, with what to do about it, and nothing is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import millstream as m
from millstream import serdes, stores, value
from millstream.cli.main import millstream as command
from millstream.errors import MillstreamError
from millstream.log import Producer, open_log
from millstream.testing import TopologyTestDriver

LONGEST = 700
STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


class Silent(m.Processor[Any, Any, Any, Any]):
    """Forgets to keep its context."""

    def init(self, context: Any) -> None:
        del context

    def process(self, record: Any) -> None:
        self.context.forward(record)


def stream() -> Any:
    return m.StreamsBuilder().stream("in", **STRINGS)


def table() -> Any:
    return m.StreamsBuilder().table("in", **STRINGS)


def grouped() -> Any:
    return stream().group_by_key()


def builder() -> Any:
    return m.StreamsBuilder()


def built(build: Callable[[Any], object]) -> m.Topology:
    made = m.StreamsBuilder()
    build(made)
    return made.build()


def joined(one: Any, joiner: Any, **given: Any) -> None:
    one.join(one, joiner, m.JoinWindows(5), **given)


def copy() -> m.Topology:
    return built(lambda b: b.stream("in", **STRINGS).to("out"))


def log_with_topic(here: Path) -> Path:
    log = open_log(here / "log")
    log.create_topic("in")
    with Producer(log, "in") as producer:
        producer.send(b"k", b"v")
    return here / "log"


def app(here: Path, topology: Any = None, **given: Any) -> m.Streams:
    config = given.pop("config", None) or m.StreamsConfig(state_dir=here / "state")
    given = {"app_id": "app", "log": here / "log", "engine": "local", "config": config, **given}
    return m.Streams(copy() if topology is None else topology, **given)


def run(here: Path, topology: Any = None, **given: Any) -> None:
    with app(here, topology, **given) as running:
        running.run(until="caught-up")


def pipe(build: Callable[[Any], object], config: Any = None) -> None:
    with TopologyTestDriver(built(build), config=config) as driver:
        driver.input_topic("in", **STRINGS).pipe("k", "v")


def a_file(here: Path) -> Path:
    (here / "file").write_text("x")
    return here / "file"


SERDES: dict[str, tuple[Callable[[], object], str]] = {
    "a type as a serde": (
        lambda: builder().stream("in", value=str),
        "value=str: str is not a serde",
    ),
    "the name of a serde": (
        lambda: builder().stream("in", value="string"),
        "Remedy: give serdes.string itself",
    ),
    "a serde class": (
        lambda: builder().table("in", key=serdes.BaseSerde),
        "BaseSerde is a serde class, but an instance is needed",
    ),
    "a type as a serde of a sink": (lambda: stream().to("out", value=int), "serdes.int64"),
    "a type as a serde of a store": (
        lambda: grouped().count(store=m.Store("n", value=int)),
        "value=int: int is not a serde",
    ),
    "a type as a serde of a group": (lambda: stream().group_by_key(key=str), "key=str"),
    "a type as a serde of a join": (
        lambda: built(lambda b: joined(b.stream("in"), lambda a, c: a, key=str)),
        "key=str: str is not a serde",
    ),
    "a type as a serde of a processor's store": (
        lambda: builder().add_state_store(stores.key_value("n", value=dict)),
        "store 'n': value=dict: dict is not a serde",
    ),
    "a dataclass as a serde": (
        lambda: builder().stream("in", value=m.Window),
        "serdes.json(Window)",
    ),
}
FUNCTIONS: dict[str, tuple[Callable[[], object], str]] = {
    "a value for a function": (lambda: stream().filter(True), "filter() takes a function of (key, value)"),
    "map_values of key and value": (
        lambda: stream().map_values(lambda k, v: v),
        "Remedy: map_values_with_key() calls it with (key, value)",
    ),
    "map_values_with_key of a value": (
        lambda: stream().map_values_with_key(lambda v: v),
        "Remedy: map_values() calls it with (value)",
    ),
    "flat_map_values of key and value": (
        lambda: stream().flat_map_values(lambda k, v: [v]),
        "Remedy: flat_map_values_with_key()",
    ),
    "a filter of the value alone": (
        lambda: stream().filter(lambda v: v),
        "a lambda takes (v). Remedy: give it a function, as in lambda key, value: ...",
    ),
    "a group of the value alone": (lambda: stream().group_by(lambda v: v), "group_by() calls its function"),
    "a reducer of three": (lambda: grouped().reduce(lambda k, a, b: a), "reduce() calls its function"),
    "an initializer that is a value": (
        lambda: grouped().aggregate(0, lambda k, v, n: n),
        "initializer of aggregate() is 0, which can't be called. Remedy: a function",
    ),
    "an aggregator of two": (
        lambda: grouped().aggregate(lambda: 0, lambda v, n: n),
        "aggregate() calls its function with (key, value, so_far), but a lambda takes (v, n)",
    ),
    "a joiner of three": (
        lambda: built(lambda b: joined(b.stream("in"), lambda k, a, c: a)),
        "Remedy: with_key=True calls it with (key, left, right)",
    ),
    "an expression where a function belongs": (
        lambda: table().filter(value > 5),
        "it got an expression, which has no meaning there",
    ),
    "a predicate of one": (lambda: stream().split().branch(lambda v: v), "branch() calls its function"),
    "a partitioner of two": (
        lambda: stream().to("out", partitioner=lambda key, count: 0),
        "partitioner calls its function with (topic, key, value, partitions)",
    ),
    "a topic extractor of one": (lambda: stream().to(lambda v: v), "to() calls its function with"),
    "an instance of a processor": (lambda: stream().process(Silent()), "is not a supplier"),
    "a supplier that takes a record": (
        lambda: stream().process(lambda record: record),
        "a supplier is called without arguments",
    ),
    "a supplier of nothing": (lambda: stream().process(lambda: None), "which has no process()"),
    "a transformer without transform": (
        lambda: table().transform_values(Silent),
        "which has no transform()",
    ),
    "init without super().init": (
        lambda: pipe(lambda b: b.stream("in", **STRINGS).process(Silent).to("out")),
        "Remedy: call super().init(context) first of all in init()",
    ),
    "an expression over what is no column": (
        lambda: builder().stream("in", value=serdes.uuid).filter(value == "x"),
        "UUID can't be a column",
    ),
    "an expression over a field that is not there": (
        lambda: builder().stream("in", value=serdes.json({"a": int})).filter(value.b > 1),
        "can't be computed",
    ),
}
NAMES: dict[str, tuple[Callable[[], object], str]] = {
    "a topic with a slash": (
        lambda: builder().stream("orders/eu"),
        "'orders/eu' can't be the name of a topic",
    ),
    "an empty topic": (lambda: builder().stream(""), "'' can't be the name of a topic"),
    "a topic that leads out": (lambda: builder().table(".."), "'..' can't be the name of a topic"),
    "no topics": (lambda: builder().stream([]), "a stream of no topic at all"),
    "a number as a topic": (lambda: builder().stream(5), "5 can't be the name of a topic"),
    "None as a topic": (lambda: builder().global_table(None), "None can't be the name of a topic"),
    "a sink with a slash": (lambda: stream().to("a/b"), "'a/b' can't be the name of a topic"),
    "a topic of a processor's source": (
        lambda: m.Topology().add_source("in", "a b"),
        "source 'in': 'a b' can't be the name of a topic",
    ),
    "two words for an operator": (
        lambda: built(lambda b: b.stream("in").filter(lambda k, v: v, name="two words")),
        "'two words' can't be a name",
    ),
    "two words for a store": (
        lambda: built(lambda b: b.stream("in").group_by_key().count(store="two words")),
        "'two words' can't be the name of a state store",
    ),
    "a dead-letter topic with a slash": (
        lambda: m.StreamsConfig(dead_letter_topic="a/b"),
        "dead_letter_topic is 'a/b', which can't be the name of a topic",
    ),
    "a name of Kafka's": (lambda: stream().mapValues(len), "Remedy: map_values(...)"),
    "a builder object of Kafka's": (lambda: m.Consumed, "keyword arguments of builder.stream()"),  # type: ignore[attr-defined]
    "a window of Kafka's": (lambda: m.TimeWindows.ofSizeWithNoGrace(5), "Remedy: TimeWindows(size)"),  # type: ignore[attr-defined]
    "a count of a stream": (lambda: stream().count(), "stream.group_by_key().count(...)"),
}
STORES: dict[str, tuple[Callable[[], object], str]] = {
    "a builder of a store for a table": (
        lambda: grouped().count(store=stores.key_value("n")),
        "store='n' is a StoreBuilder",
    ),
    "a number for a store": (lambda: grouped().count(store=5), "store=5. Remedy: give the store's name"),
    "a name for a builder of a store": (
        lambda: builder().add_state_store("seen"),
        "stores.key_value('seen', ...) makes one",
    ),
    "a Store for a builder of a store": (
        lambda: builder().add_state_store(m.Store("seen")),
        "Store(...) is for store= of the operators",
    ),
    "a builder of a store for its name": (
        lambda: built(lambda b: b.stream("in").process(m.Processor, stores.key_value("seen"))),
        "give the store's name, 'seen',",
    ),
    "an unknown store": (
        lambda: built(lambda b: b.stream("in").process(m.Processor, "seen")),
        "asks for the state store 'seen', which is unknown",
    ),
    "an unknown backend of a store": (
        lambda: built(lambda b: b.stream("in").group_by_key().count(store=m.Store("n", backend="rocks"))),
        "There is no state backend 'rocks'",
    ),
    "an unknown backend": (
        lambda: m.StreamsConfig(backend="rocks"),
        "There is no state backend 'rocks'. Remedy: use one of lmdb, memory, rocksdb",
    ),
    "caching that is no answer": (
        lambda: m.StreamsConfig(caching="no"),  # type: ignore[arg-type]
        "caching is 'no'. Remedy: True (each store decides) or False",
    ),
}
APPLICATIONS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a builder for a topology": (
        lambda here: app(here, m.StreamsBuilder()),
        "Streams() got a StreamsBuilder, not a topology. Remedy: give it what .build() returns",
    ),
    "a builder for a topology under test": (
        lambda _: TopologyTestDriver(builder()),
        "TopologyTestDriver() got a StreamsBuilder",
    ),
    "an empty topology": (lambda here: app(here, m.Topology()), "a topology that reads no topic"),
    "no app_id": (lambda here: app(here, app_id=None), "None can't be an application id"),
    "an app_id with a slash": (lambda here: app(here, app_id="a/b"), "'a/b' can't be an application id"),
    "settings in a dict": (lambda here: app(here, config={"tick_ms": 5}), "Remedy: give StreamsConfig(...)"),
    "an unknown setting": (
        lambda _: m.StreamsConfig(commit_interval=5),  # type: ignore[call-arg]
        "StreamsConfig(commit_interval=...): there is no such argument. Remedy: commit_interval_ms=, perhaps",
    ),
    "a setting of Kafka's": (
        lambda _: m.StreamsConfig(maxTaskIdleMs=5),  # type: ignore[call-arg]
        "Remedy: max_task_idle_ms=, perhaps; help(StreamsConfig) lists them all",
    ),
    "a setting in the wrong place": (
        lambda here: app(here, state_dir="state"),
        "Streams(state_dir=...): there is no such argument. Remedy: it is a setting: config=StreamsConfig(",
    ),
    "an application_id": (lambda here: app(here, application_id="a"), "Remedy: app_id=, perhaps"),
    "no application id": (lambda _: m.Streams(copy()), "Streams() needs app_id. Remedy: Streams(topology"),  # type: ignore[call-arg]
    "settings without their name": (
        lambda _: m.Streams(copy(), "app"),  # type: ignore[call-arg]
        "Remedy: name them, as in Streams(topology, app_id=...)",
    ),
    "an unknown engine": (lambda here: app(here, engine="flink"), "engine='flink'"),
    "a log without a name": (lambda here: app(here, log=""), "log=''. Remedy: give a folder"),
    "a log of Kafka's": (lambda here: app(here, log="kafka://here"), "Kafka is not supported yet"),
    "a log that is not there": (run, "There is no log in"),
    "a log that is a file": (lambda here: run(here, log=a_file(here)), "There is no log in"),
    "a topic that is not there": (
        lambda here: run(here, built(lambda b: b.stream("out")), log=log_with_topic(here)),
        "reads the topic 'out', which does not exist",
    ),
    "state in a file": (
        lambda here: run(here, log=log_with_topic(here), config=m.StreamsConfig(state_dir=a_file(here))),
        "can't be used: Not a directory",
    ),
    "state below a file": (
        lambda here: run(
            here, log=log_with_topic(here), config=m.StreamsConfig(state_dir=a_file(here) / "state")
        ),
        "can't be used: Not a directory",
    ),
    "no session": (
        lambda here: run(here, log=log_with_topic(here), engine="jobs", spark="local[2]"),
        "is neither a SparkSession nor a SparkContext",
    ),
    "a setting of Spark's that loses a guarantee": (
        lambda here: run(
            here,
            log=log_with_topic(here),
            engine="jobs",
            config=m.StreamsConfig(spark_settings={"spark.speculation": "true"}),
        ),
        "spark.speculation is 'true'",
    ),
    "until when?": (lambda here: app(here).run(until="caughtup"), "Did you mean 'caught-up'?"),  # type: ignore[arg-type]
    "a wrong timestamp extractor": (
        lambda _: builder().stream("in", timestamp_extractor="created"),
        "timestamp_extractor is 'created', which can't be called",
    ),
    "windows that were not made": (lambda _: grouped().windowed_by(m.TimeWindows), "was not called"),
    "a handler that is none": (
        lambda _: m.StreamsConfig(processing_handler="skip"),  # type: ignore[arg-type]
        "processing_handler is 'skip', which can't be called",
    ),
}
CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        name: ((lambda _, give=give: give()), part)  # type: ignore[misc]
        for table_of in (SERDES, FUNCTIONS, NAMES, STORES)
        for name, (give, part) in table_of.items()
    },
    **APPLICATIONS,
}
COMMANDS: dict[str, tuple[list[str], str]] = {
    "a log that is not there": (["topics", "list"], "There is no log in"),
    "a topic that is not there": (["topics", "describe", "orders"], "There is no log in"),
    "a topic with a slash": (["topics", "create", "a/b"], "A topic can't be called 'a/b'"),
    "no partitions": (["topics", "create", "orders", "--partitions", "0"], "partitions"),
    "a log that is a file": (["topics", "create", "orders", "--log", "file:file"], "file"),
}


def everything(here: Path) -> set[Path]:
    return set(here.rglob("*"))


def made_for_the_case(here: Path) -> set[Path]:
    """What a case brings along: a file, or a log with a topic, and no trace of an application."""
    log = here / "log"
    own = {path for path in log.rglob("*") if "applications" not in path.parts and "sealed" not in path.parts}
    return own | {here / "file", log}


def test_there_are_sixty_of_them() -> None:
    assert len(CASES) + len(COMMANDS) >= 60


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_told_in_one_message_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    give, part = CASES[name]
    threads = threading.active_count()
    with pytest.raises((MillstreamError, AttributeError)) as caught:
        give(tmp_path)
    message = str(caught.value)
    assert part in message
    assert "Remedy: " in message
    assert len(message) <= LONGEST
    first, *rest = message.splitlines()
    assert first
    assert all(line.startswith(("  ", "Remedy: ")) for line in rest), message
    assert "Traceback" not in message
    assert everything(tmp_path) <= made_for_the_case(tmp_path)
    assert threading.active_count() <= threads
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_on_the_command_line_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a_file(tmp_path)
    arguments, part = COMMANDS[name]
    result = CliRunner().invoke(command, arguments)
    last = result.output.splitlines()[-1]
    assert result.exit_code in {1, 2}
    assert last.startswith("Error: ")
    assert part in last
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    assert everything(tmp_path) == {tmp_path / "file"}
