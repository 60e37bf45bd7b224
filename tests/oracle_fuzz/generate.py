"""Random cases: everything is drawn from one seed.

What Kafka refuses is not drawn on purpose, but may happen: then both have to refuse it.
A new operator is a method `add_...` here, and a line in `_WEIGHTS`.
"""

from __future__ import annotations

import random
from typing import Any

from tests.oracle_fuzz.draws import Handle
from tests.oracle_fuzz.generate_joins import JoinDraws
from tests.oracle_fuzz.inputs import random_actions
from tests.oracle_fuzz.known import is_open
from tests.oracle_fuzz.spec import Case, Step

_WEIGHTS = {
    "filter": 2,
    "map": 2,
    "map_values": 2,
    "flat_map": 2,
    "select_key": 2,
    "peek": 1,
    "merge": 2,
    "split": 1,
    "repartition": 1,
    "process": 1,
    "to_table": 3,
    "aggregation": 6,
    "cogroup": 2,
    "table_filter": 3,
    "table_map_values": 3,
    "table_aggregation": 4,
    "to_stream": 3,
    "suppress": 2,
    "stream_join": 3,
    "stream_table_join": 3,
    "global_table_join": 2,
    "table_join": 3,
    "foreign_key_join": 3,
}
_THEMES: dict[str, dict[str, int]] = {
    "streams": {},
    "tables": {
        "table_filter": 2,
        "table_map_values": 2,
        "table_aggregation": 3,
        "aggregation": 2,
        "to_table": 2,
    },
    "windows": {"aggregation": 8, "cogroup": 4, "suppress": 5},
    "joins": {"stream_join": 8, "stream_table_join": 6, "global_table_join": 3, "table_join": 8},
    "foreign keys": {"foreign_key_join": 12, "table_join": 2, "stream_table_join": 2},
}
"""What a case is about: how many times more often some operators are drawn."""
_STREAM_SHARE = 0.65
_KINDS = (*["time"] * 4, *["sliding"] * 3, *["session"] * 4, "unlimited")
_DAY_MS = 86_400_000
OWN = {"sum", "min", "max"}
"""Kafka has no such aggregations; ours do not look at records without a value, in windows either."""


def random_case(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(f"oracle fuzz {seed}")
    while True:
        case = _drawn(rng)
        if not is_open(case):
            return case


def _drawn(rng: random.Random) -> Case:
    generator = _Generator(rng)
    steps = generator.draw()
    inputs = {step["topic"]: step["types"][1] for step in steps if "topic" in step}
    optimization = "all" if rng.random() < 0.15 else "none"
    return Case(tuple(steps), random_actions(rng, inputs, generator.durations), optimization).tidied()


class _Generator(JoinDraws):
    """Draws everything else, too."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.theme = rng.choice(("streams", "tables", "windows", "windows", *["joins"] * 3, "foreign keys"))
        self.windows_share = 0.95 if self.theme == "windows" else 0.3
        self.versions_share = 0.3 if self.theme == "joins" else 0.15

    def draw(self) -> list[Step]:
        joins = self.theme in {"joins", "foreign keys"}
        for _ in range(self.rng.choice((2, 2, 3) if joins else (1, 1, 1, 2, 2, 3))):
            self.add_source()
        more = _THEMES[self.theme]
        weights = [
            weight * more.get(name, 1) * self.rng.choice((0, 1, 1, 3)) for name, weight in _WEIGHTS.items()
        ]
        for _ in range(self.rng.randint(1, 7)):
            chosen = self.rng.choices(list(_WEIGHTS), weights)[0] if any(weights) else "aggregation"
            getattr(self, f"add_{chosen}")()
        self.add_sinks()
        return self.steps

    # Sources and streams.

    def add_source(self) -> None:
        topic = self.next_topic()
        types = ("string", self.value_type())
        if self.chance(0.2 if self.theme == "foreign keys" else _STREAM_SHARE):
            self.streams.append(Handle(self.add("stream", topic=topic, types=types), types))
        else:
            store = self.store(optional=True, versions=True)
            step = self.add("table", topic=topic, types=types, store=store)
            self.tables.append(Handle(step, types, versioned=_is_versioned(store)))

    def stream(self) -> Handle:
        """A stream that is there, or the updates of a table."""
        if not self.streams or (self.tables and self.chance(0.2)):
            self.add_to_stream()
        found = self.one_of(self.streams)
        assert found is not None
        return found

    def next_stream(self, op: str, parent: Handle, made: tuple[str, str], **parameters: Any) -> None:
        step = self.add(op, parent.id, **{"from": parent.types}, **parameters)
        self.streams.append(Handle(step, made))

    def add_filter(self) -> None:
        stream = self.stream()
        op = self.rng.choice(("filter", "filter_not"))
        self.next_stream(op, stream, stream.types, **{"if": self.predicate()})

    def add_map(self) -> None:
        stream, value = self.stream(), self.value_type()
        self.next_stream("map", stream, ("string", value), key=self.new_key(), value=self.new_value(value))

    def add_map_values(self) -> None:
        stream, value = self.stream(), self.value_type()
        op = self.rng.choice(("map_values", "map_values_with_key"))
        self.next_stream(op, stream, (stream.key, value), value=self.new_value(value))

    def add_flat_map(self) -> None:
        stream, value = self.stream(), self.value_type()
        if self.chance(0.5):
            self.next_stream(
                "flat_map", stream, ("string", value), key=self.new_key(), values=self.several(value)
            )
        else:
            self.next_stream("flat_map_values", stream, (stream.key, value), values=self.several(value))

    def add_select_key(self) -> None:
        stream = self.stream()
        self.next_stream("select_key", stream, ("string", stream.value), key=self.new_key())

    def add_peek(self) -> None:
        stream = self.stream()
        self.next_stream("peek", stream, stream.types)

    def add_merge(self) -> None:
        one = self.stream()
        others = [other for other in self.streams if other.types == one.types and other.id != one.id]
        if others:
            step = self.add("merge", one.id, self.rng.choice(others).id)
            self.streams.append(Handle(step, one.types))

    def add_split(self) -> None:
        stream = self.stream()
        ifs = [self.predicate() for _ in range(self.rng.choice((1, 2)))]
        default = self.chance(0.6)
        step = self.add("split", stream.id, ifs=ifs, default=default)
        for number in range(len(ifs) + default):
            if self.chance(0.8):
                branch = self.add("branch", step, number=number)
                self.streams.append(Handle(branch, stream.types))

    def add_repartition(self) -> None:
        stream = self.stream()
        self.next_stream("repartition", stream, stream.types, types=stream.types, named=self.chance(0.5))

    def add_process(self) -> None:
        stream = self.stream()
        fixed_key = stream.key != "string" or self.chance(0.5)
        every = self.rng.choice((None, 50, 1000))
        self.next_stream("process", stream, (stream.key, "int64"), fixed_key=fixed_key, every=every)

    # Aggregations of streams.

    def group(self) -> Handle:
        if not self.groups or self.chance(0.7):
            self.groups.append(self.grouped(self.stream()))
        found = self.one_of(self.groups)
        assert found is not None
        return found

    def grouped(self, stream: Handle) -> Handle:
        parameters: dict[str, Any] = {"from": stream.types, "named": self.chance(0.6)}
        if self.chance(0.5):
            return Handle(self.add("group_by_key", stream.id, types=stream.types, **parameters), stream.types)
        types, key = ("string", stream.value), self.new_key()
        return Handle(self.add("group_by", stream.id, types=types, key=key, **parameters), types)

    def group_of_values(self) -> Handle:
        """A grouped stream without None among its values."""
        stream, value = self.stream(), self.value_type()
        self.next_stream("map_values", stream, (stream.key, value), value=self.new_value(value, null=0))
        return self.grouped(self.streams[-1])

    def add_aggregation(self) -> None:
        how = self.rng.choice(("count", "count", "reduce", "aggregate", "aggregate", "sum", "min", "max"))
        group = self.group() if how not in OWN else self.group_of_values()
        value = {"reduce": group.value, "aggregate": self.value_type()}.get(how, "int64")
        numbers = self.new_value("int64", null=0) | {"key": False}
        windows = self.windows(group)
        closes = windows is not None and windows["kind"] != "unlimited"
        emit = "close" if closes and self.chance(0.3) else "update"
        step = self.add(
            "aggregation",
            group.id,
            how=how,
            fold=self.fold(value),
            merger=self.fold(value),
            number=numbers if how in OWN else None,
            windows=windows,
            emit=emit,
            store=self.windowed_store(group, windows, emit),
            types=["string" if windows else group.key, value],
            **{"from": group.types},
        )
        self.add_table(step, group.key, value, windows)

    def add_cogroup(self) -> None:
        groups = [self.group() for _ in range(self.rng.choice((1, 2, 2, 3)))]
        groups = [group for group in dict.fromkeys(groups) if group.key == groups[0].key]
        value = self.value_type()
        windows = self.windows(groups[0])
        step = self.add(
            "cogroup",
            *(group.id for group in groups),
            folds=[self.fold(value) for _ in groups],
            merger=self.fold(value),
            windows=windows,
            store=self.windowed_store(groups[0], windows, "update"),
            types=["string" if windows else groups[0].key, value],
        )
        self.add_table(step, groups[0].key, value, windows)

    def add_table(self, step: int, key: str, value: str, windows: dict[str, Any] | None) -> None:
        store = self.steps[step]["store"]
        if windows is None:
            self.tables.append(Handle(step, (key, value), versioned=_is_versioned(store)))
        else:
            ends = windows["kind"] != "unlimited"
            self.tables.append(Handle(step, (_key_type(windows), value), windowed=ends))
            if self.chance(0.25):
                self.suppress(self.tables[-1])

    def windows(self, group: Handle) -> dict[str, Any] | None:
        if group.key != "string" or not self.chance(self.windows_share):
            return None
        kind = self.rng.choice(_KINDS)
        if kind == "unlimited":
            return {"kind": kind, "start": self.rng.choice((0, 0, 7, 1_000_000))}
        size = self.rng.choice((1, 2, 5, 10, 10, 20, 50))
        grace = self.rng.choice((0, 0, 1, 5, 20, 100))
        self.durations |= {size, grace, size + grace, 1}
        windows = {"kind": kind, "size": size, "grace": grace}
        if kind == "time":
            windows["advance"] = size if self.chance(0.5) else self.rng.randint(max(1, size // 5), size)
        return windows

    def windowed_store(self, group: Handle, windows: dict[str, Any] | None, emit: str) -> dict[str, Any]:
        store = self.store(versions=windows is None and group.key == "string")
        assert store is not None
        if windows is None or windows["kind"] == "unlimited":
            return store
        if emit == "close":  # with less, Kafka loses windows after a jump of time: see known.py
            return {**store, "retention": _DAY_MS}
        if self.chance(0.4):
            least = windows["size"] * (2 if windows["kind"] == "sliding" else 1) + windows["grace"]
            retention = least + self.rng.choice((0, 1, 10, 100, _DAY_MS))
            self.durations |= {retention} if retention < _DAY_MS else set()
            return {**store, "retention": retention}
        return store

    # Tables.

    def table(self) -> Handle:
        if not self.tables or self.chance(0.1):
            self.add_to_table()
        found = self.one_of(self.tables)
        assert found is not None
        return found

    def add_to_table(self) -> None:
        stream = self.stream()
        store = self.store(versions=stream.key == "string")
        step = self.add("to_table", stream.id, types=stream.types, store=store)
        self.tables.append(Handle(step, stream.types, versioned=_is_versioned(store)))

    def add_to_stream(self) -> None:
        table = self.table()
        key = self.new_key() if self.chance(0.3) else None
        step = self.add("to_stream", table.id, key=key)
        self.streams.append(Handle(step, (table.key if key is None else "string", table.value)))

    def next_table(self, op: str, parent: Handle, made: str, **parameters: Any) -> None:
        store = self.store(optional=True)
        step = self.add(op, parent.id, types=[parent.key, made], store=store, **parameters)
        self.tables.append(Handle(step, (parent.key, made), parent.windowed, parent.versioned))

    def add_table_filter(self) -> None:
        table = self.table()
        negated = self.chance(0.3)
        self.next_table("table_filter", table, table.value, negated=negated, **{"if": self.predicate()})

    def add_table_map_values(self) -> None:
        table, value = self.table(), self.value_type()
        with_key = self.chance(0.5)
        made = self.new_value(value)
        self.next_table("table_map_values", table, value, with_key=with_key, value=made)

    def add_table_aggregation(self) -> None:
        if not self.table_groups or self.chance(0.7):
            table = self.table()
            types = ("string", self.value_type())
            key, value = self.new_key(), self.new_value(types[1])
            named = self.chance(0.5)
            step = self.add("table_group_by", table.id, types=types, named=named, key=key, value=value)
            self.table_groups.append(Handle(step, types))
        group = self.one_of(self.table_groups)
        assert group is not None
        how = self.rng.choice(("count", "reduce", "aggregate", "aggregate"))
        value_type = {"count": "int64", "reduce": group.value}.get(how) or self.value_type()
        store = self.store(versions=True)
        step = self.add(
            "table_aggregation",
            group.id,
            how=how,
            fold=self.fold(value_type),
            subtract=self.fold(value_type, subtracting=True),
            number=None,
            types=["string", value_type],
            store=store,
        )
        self.tables.append(Handle(step, ("string", value_type), versioned=_is_versioned(store)))

    def add_suppress(self) -> None:
        table = self.table()
        if not table.versioned:
            self.suppress(table)

    def suppress(self, table: Handle) -> None:
        until_closed = table.windowed and self.chance(0.7)
        bounded = self.chance(0.15 if until_closed else 0.5)
        step = self.add(
            "suppress",
            table.id,
            until=None if until_closed else self.rng.choice((0, 1, 5, 20, 100)),
            max_records=self.rng.choice((1, 2, 3, 8)) if bounded else None,
            when_full="shut-down" if self.chance(0.2) else "emit-early",
        )
        self.tables.append(Handle(step, table.types, table.windowed))

    # Ends.

    def add_sinks(self) -> None:
        """Everything that nobody reads gets a sink, so that its records are seen."""
        read = {parent for step in self.steps for parent in step["of"]}
        for table in self.tables:
            if table.id not in read:
                step = self.add("to_stream", table.id, key=None)
                self.streams.append(Handle(step, table.types))
        read = {parent for step in self.steps for parent in step["of"]}
        for stream in self.streams:
            if stream.id not in read:
                self.add("to", stream.id, types=stream.types)


def _is_versioned(store: dict[str, Any] | None) -> bool:
    return store is not None and store["versioned"] is not None


def _key_type(windows: dict[str, Any]) -> str:
    if windows["kind"] == "session":
        return "session"
    return f"time:{windows.get('size', 2**63 - 1)}"
