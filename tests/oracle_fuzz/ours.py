"""Millstream's side: a case on `TopologyTestDriver`, or many records at once on `EpochRunner`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tests.oracle_fuzz.build import Seen
from tests.oracle_fuzz.kafka import keys_of, times_of
from tests.oracle_fuzz.results import Outputs, Results, Row
from tests.oracle_fuzz.spec import Case, Step, stores_of
from tests.oracle_fuzz.types import as_json, serde
from tests.properties.engine import columns_for_any_number, in_arrow
from tests.simulation.epochs import EpochRunner

from millstream import Topology
from millstream.errors import MillstreamError
from millstream.task.records import RawBatch
from millstream.testing import TopologyTestDriver

Builder = Callable[[Case, Seen], Topology]


class _Outputs:
    """What the action at hand has led to."""

    def __init__(self) -> None:
        self.by_topic: Outputs = {}

    def add(self, topic: str, row: Row) -> None:
        self.by_topic.setdefault(topic, []).append(row)

    def saw(self, peek: str, key: Any, value: Any) -> None:
        self.add(peek, [as_json(key), as_json(value)])

    def take(self) -> Outputs:
        taken, self.by_topic = self.by_topic, {}
        return taken


def play(case: Case, build: Builder, *, fresh_tasks: bool = False) -> Results:
    """What comes of a case, one record at a time."""
    outputs = _Outputs()
    try:
        topology = build(case, outputs.saw)
        driver = TopologyTestDriver(topology, start_ms=0, fresh_tasks=fresh_tasks)
    except MillstreamError as refusal:
        return Results(refused=str(refusal))
    actions: list[Outputs] = []
    with driver:
        inputs = {
            step["topic"]: driver.input_topic(step["topic"], **_serdes(step))
            for step in case.steps
            if "topic" in step
        }
        sinks = {
            f"out{step['id']}": driver.output_topic(f"out{step['id']}", **_serdes(step))
            for step in case.steps
            if step["op"] == "to"
        }
        for action in case.actions:
            try:
                if "clock" in action:
                    driver.advance_wall_clock(action["clock"])
                else:
                    inputs[action["topic"]].pipe(
                        action["key"],
                        action["value"],
                        timestamp=action["at"],
                        headers=tuple((name, value.encode()) for name, value in action["headers"]),
                    )
            except MillstreamError as error:
                described = topology.describe()
                return Results(topology=described, actions=actions, error=str(error))
            for name, sink in sinks.items():
                for record in sink.read_all():
                    row = _row(record.key, record.value, record.timestamp, record.headers)
                    outputs.add(name, row)
            actions.append(outputs.take())
        stores = dict(_dumped(case, lambda step, name: _store_of(driver, step, name)))
    return Results(topology=topology.describe(), actions=actions, stores=stores)


def play_at_once(case: Case, build: Builder, *, as_if_many: bool = False) -> Results:
    """What comes of a case if all records between two ticks of the clock are one epoch."""
    outputs = _Outputs()
    try:
        topology = build(case, outputs.saw)
        topics = {step["topic"]: step for step in case.steps if "topic" in step}
        runner = EpochRunner(topology, partitions=dict.fromkeys(topics, 1))
    except MillstreamError as refusal:
        return Results(refused=str(refusal))
    columns: AbstractContextManager[None] = columns_for_any_number() if as_if_many else nullcontext()
    with runner, columns:
        now = 0
        offsets = dict.fromkeys(topics, 0)
        for records, passed in _epochs(case):
            raws = [_raw(topic, step, records, offsets) for topic, step in topics.items()]
            full = [raw for raw in raws if len(raw.offsets)]
            now += passed
            runner.run_epoch([in_arrow(raw) for raw in full] if as_if_many else full, now_ms=now)
        for step in case.steps:
            if step["op"] == "to":
                given = _serdes(step)
                for row in runner.outputs.get(f"out{step['id']}", ()):
                    key = None if row.key is None else given["key"].deserialize(row.key)
                    value = None if row.value is None else given["value"].deserialize(row.value)
                    outputs.add(f"out{step['id']}", _row(key, value, row.timestamp, row.headers))
        stores = dict(_dumped(case, lambda _, name: runner.stores(name)[0]))
    return Results(topology=topology.describe(), actions=[outputs.take()], stores=stores)


def _epochs(case: Case) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Records, and how much time has passed when they are processed."""
    records: list[dict[str, Any]] = []
    passed = 0
    for action in case.actions:
        if "clock" in action:
            yield records, passed
            records, passed = [], action["clock"]
        else:
            records.append(action)
    yield records, passed


def _raw(topic: str, step: Step, records: list[dict[str, Any]], offsets: dict[str, int]) -> RawBatch:
    mine = [record for record in records if record["topic"] == topic]
    first = offsets[topic]
    offsets[topic] += len(mine)
    encode = _serdes(step)["value"].serialize
    return RawBatch(
        topic,
        0,
        list(range(first, first + len(mine))),
        [None if record["key"] is None else record["key"].encode() for record in mine],
        [None if record["value"] is None else encode(record["value"]) for record in mine],
        [record["at"] for record in mine],
        [tuple((name, value.encode()) for name, value in record["headers"]) for record in mine],
    )


def _serdes(step: Step) -> dict[str, Any]:
    key, value = step["types"]
    return {"key": serde(key), "value": serde(value)}


def _row(key: Any, value: Any, timestamp: int, headers: Any) -> Row:
    shown = [[name, None if data is None else data.decode()] for name, data in headers]
    return [as_json(key), as_json(value), timestamp, shown]


def _store_of(driver: TopologyTestDriver, step: Step, name: str) -> Any:
    if step["op"] == "process":
        return driver.store(name)
    if _is_versioned(step):
        return driver.versioned_store(name)
    if step.get("windows") is None:
        return driver.timestamped_store(name)
    return driver.session_store(name) if _is_session(step) else driver.timestamped_window_store(name)


def _is_versioned(step: Step) -> bool:
    return step.get("store") is not None and step["store"]["versioned"] is not None


def _is_session(step: Step) -> bool:
    return step.get("windows") is not None and step["windows"]["kind"] == "session"


def _dumped(case: Case, find: Callable[[Step, str], Any]) -> Iterator[tuple[str, list[Row]]]:
    """All rows of all named stores."""
    for step in case.steps:
        name = stores_of(step)
        if name is None:
            continue
        store = find(step, name)
        if _is_versioned(step):
            rows = list(_versions(store, case))
        else:
            everything = store.fetch_range(None, None) if _is_session(step) else store.all()
            with everything as entries:
                rows = [[as_json(key), *_cell(value)] for key, value in entries]
        yield name, sorted(rows, key=repr)


def _cell(value: Any) -> list[Any]:
    return [value.value, value.timestamp] if hasattr(value, "timestamp") else [value]


def _versions(store: Any, case: Case) -> Iterator[Row]:
    for key in keys_of(case):
        for when, found in (
            ("latest", store.get(key)),
            *((str(time), store.get(key, as_of=time)) for time in times_of(case)),
        ):
            if found is not None:
                yield [key, when, found.value, found.timestamp]
