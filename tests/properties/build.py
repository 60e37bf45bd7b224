"""From a spec to a Millstream topology, through the DSL."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, singledispatchmethod
from typing import Any

from polars.exceptions import InvalidOperationError
from tests.properties import spec as s
from tests.properties.functions import PoisonError, Value
from tests.properties.user_code import Program, transform

from millstream import (
    EmitStrategy,
    FixedKeyProcessor,
    FixedKeyRecord,
    JoinWindows,
    Processor,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    Windowed,
    handlers,
    serdes,
    stores,
)
from millstream.errors import SerializationError

CLOCKS = {"stream": PunctuationType.STREAM_TIME, "wall": PunctuationType.WALL_CLOCK_TIME}
DEAD_LETTERS = "dead-letters"
HISTORY_MS = 1_000_000
"""Of versioned tables: longer than any input takes."""


@dataclass
class Built:
    """A topology, and what its `peek`, `foreach` and `print` operators will have seen."""

    topology: Topology
    seen: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)
    printed: dict[str, io.StringIO] = field(default_factory=dict)


def build(spec: s.Spec) -> Built:
    """Make the topology."""
    return build_with(Building(spec), spec)


def make_operators(building: Building, spec: s.Spec) -> None:
    """Make the operators, without an end."""
    for name in spec.plain_stores:
        building.builder.add_state_store(stores.key_value(name, **building.serdes))
    for op in spec.ops:
        building.handles[op.id] = building.make(op)


def build_with(building: Building, spec: s.Spec) -> Built:
    """Make the topology in some way."""
    make_operators(building, spec)
    building.built.topology = building.builder.build()
    return building.built


def config_of(spec: s.Spec) -> StreamsConfig:
    """The settings under which a spec runs."""
    handler = handlers.skip if spec.on_poison == "skip" else handlers.dead_letter

    def only_poison(context: handlers.ErrorContext, error: Exception) -> handlers.Verdict:
        # The same poison in an expression is a cast that fails.
        is_poison = isinstance(error, PoisonError | SerializationError | InvalidOperationError)
        return handler(context, error) if is_poison else handlers.Verdict.FAIL

    return StreamsConfig(
        processing_handler=only_poison, production_handler=only_poison, dead_letter_topic=DEAD_LETTERS
    )


class Building:
    """One method per operator; the result is the handle that operators behind it use."""

    def __init__(self, spec: s.Spec) -> None:
        self.builder = StreamsBuilder()
        self.handles: dict[int, Any] = {}
        self.built = Built(Topology())
        explicit = spec.serdes == "explicit"
        value: Any = serdes.json if explicit else serdes.int64
        self.log_serdes: dict[str, Any] = {"key": serdes.string, "value": value}
        self.serdes = self.log_serdes if explicit else {}

    def parent(self, op: Any) -> Any:
        return self.handles[op.parent]

    def store(self, op: Any) -> Store:
        name = op.store_name if op.store.named else None
        return Store(name, caching=op.store.caching, **self.serdes)

    def named_store(self, op: Any) -> dict[str, Any]:
        return {"store": self.store(op), "name": op.name}

    @singledispatchmethod
    def make(self, op: s.Op) -> Any:
        raise NotImplementedError(op)

    # Sources.

    @make.register
    def _(self, op: s.Source) -> Any:
        topics = re.compile("|".join(op.topics)) if op.by_pattern else list(op.topics)
        return self.builder.stream(topics, **self.log_serdes)

    @make.register
    def _(self, op: s.Table) -> Any:
        return self.builder.table(op.topic, **self.named_store(op), **self.log_serdes)

    @make.register
    def _(self, op: s.GlobalTable) -> Any:
        if op.own_processor:
            spec = stores.key_value(op.store_name, **self.log_serdes)
            supplier = partial(_Keeper, op.store_name)
            return self.builder.add_global_store(spec, op.topic, supplier, **self.log_serdes)
        return self.builder.global_table(op.topic, store=op.store_name, **self.log_serdes)

    # Streams.

    @make.register
    def _(self, op: s.Filter) -> Any:
        stream = self.parent(op)
        return (stream.filter_not if op.negated else stream.filter)(op.predicate, name=op.name)

    @make.register
    def _(self, op: s.Map) -> Any:
        return self.parent(op).map(lambda k, v: (op.key(k, v), op.value(k, v)), name=op.name)

    @make.register
    def _(self, op: s.MapValues) -> Any:
        if op.with_key:
            return self.parent(op).map_values_with_key(op.mapper, name=op.name)
        return self.parent(op).map_values(lambda v: op.mapper(None, v), name=op.name)

    @make.register
    def _(self, op: s.FlatMap) -> Any:
        def pairs(key: Any, value: Any) -> list[tuple[Any, Any]]:
            return [(op.key(key, one), one) for one in op.values(key, value)]

        return self.parent(op).flat_map(pairs, name=op.name)

    @make.register
    def _(self, op: s.FlatMapValues) -> Any:
        if op.with_key:
            return self.parent(op).flat_map_values_with_key(op.values, name=op.name)
        return self.parent(op).flat_map_values(lambda v: op.values(None, v), name=op.name)

    @make.register
    def _(self, op: s.SelectKey) -> Any:
        return self.parent(op).select_key(op.key, name=op.name)

    @make.register
    def _(self, op: s.Look) -> Any:
        stream = self.parent(op)
        if op.how == "print":
            file = self.built.printed[op.name] = io.StringIO()
            return stream.print(label=op.name, file=file, name=op.name)
        seen = self.built.seen.setdefault(op.name, [])
        look = stream.peek if op.how == "peek" else stream.foreach
        return look(lambda k, v: seen.append((k, v)), name=op.name)

    @make.register
    def _(self, op: s.Merge) -> Any:
        return self.parent(op).merge(self.handles[op.other], name=op.name)

    @make.register
    def _(self, op: s.Split) -> Any:
        return self.split(op, op.predicates)

    def split(self, op: s.Split, predicates: Sequence[Any]) -> Any:
        branched = self.parent(op).split(name=f"{op.name}-")
        for predicate in predicates:
            branched = branched.branch(predicate)
        streams = branched.default_branch() if op.default else branched.no_default_branch()
        numbers = [*range(1, len(op.predicates) + 1), *([0] if op.default else [])]
        return [streams[f"{op.name}-{number}"] for number in numbers]

    @make.register
    def _(self, op: s.Branch) -> Any:
        return self.parent(op)[op.number]

    @make.register
    def _(self, op: s.Repartition) -> Any:
        def partition(_topic: str, _key: Any, value: Any, count: int) -> int | None:
            return op.partitioner(value, count) if op.partitioner is not None else None

        return self.parent(op).repartition(
            name=op.name,
            partitions=op.partitions,
            partitioner=None if op.partitioner is None else partition,
            **self.serdes,
        )

    @make.register
    def _(self, op: s.To) -> Any:
        def topic(_key: Any, value: Any, _context: Any) -> str:
            return op.topics[op.choose(value, len(op.topics))]

        target = topic if len(op.topics) > 1 else op.topics[0]
        return self.parent(op).to(target, name=op.name, **self.log_serdes)

    @make.register
    def _(self, op: s.Process) -> Any:
        connected = [*s.stores_used(op), *(f"store{table}" for table in s.tables_read(op))]
        if op.fixed_key:
            return self.parent(op).process_values(partial(_Fixed, op), *connected, name=op.name)
        return self.parent(op).process(partial(_Free, op), *connected, name=op.name)

    @make.register
    def _(self, op: s.Group) -> Any:
        name = op.name if op.named else None
        if op.key is None:
            return self.parent(op).group_by_key(name=name, **self.serdes)
        return self.parent(op).group_by(op.key, name=name, **self.serdes)

    # Tables.

    @make.register
    def _(self, op: s.ToTable) -> Any:
        return self.parent(op).to_table(**self.named_store(op), **self.serdes)

    @make.register
    def _(self, op: s.ToStream) -> Any:
        if op.key is None:
            return self.parent(op).to_stream(name=op.name)
        mapper = op.key
        return self.parent(op).to_stream(lambda k, v: mapper(as_text(k), v), name=op.name)

    @make.register
    def _(self, op: s.Aggregate) -> Any:
        return self.aggregate_by(self.parent(op), op)

    def aggregate_by(self, stream: Any, op: s.Aggregate | s.WindowedAggregate, *merger: Any) -> Any:
        arguments: dict[str, tuple[Any, ...]] = {
            "count": (),
            "aggregate": (op.fold.start, op.fold, *merger),
            "reduce": (op.combine,),
        }
        given = arguments.get(op.how, (lambda v: op.of(None, v),))
        return getattr(stream, op.how)(*given, **self.named_store(op))

    @make.register
    def _(self, op: s.WindowedAggregate) -> Any:
        return self.aggregate_by(self.windowed(op), op, *merger_of(op.cut, op.fold, op.combine))

    def windowed(self, op: s.WindowedAggregate) -> Any:
        windowed = self.parent(op).windowed_by(windows_of(op.cut))
        return windowed.emit_strategy(EmitStrategy.on_window_close()) if op.on_close else windowed

    @make.register
    def _(self, op: s.WindowedCogroup) -> Any:
        windowed = self.cogrouped(op).windowed_by(windows_of(op.cut))
        merger = merger_of(op.cut, op.folds[0], op.combine)
        return windowed.aggregate(op.folds[0].start, *merger, **self.named_store(op))

    @make.register
    def _(self, op: s.Cogroup) -> Any:
        return self.cogrouped(op).aggregate(op.folds[0].start, **self.named_store(op))

    def cogrouped(self, op: s.Cogroup | s.WindowedCogroup) -> Any:
        first, *others = zip(op.groups, op.folds, strict=True)
        cogrouped = self.handles[first[0]].cogroup(first[1])
        for group, fold in others:
            cogrouped = cogrouped.cogroup(self.handles[group], fold)
        return cogrouped

    @make.register
    def _(self, op: s.TableFilter) -> Any:
        table = self.parent(op)
        return (table.filter_not if op.negated else table.filter)(op.predicate, **self.named_store(op))

    @make.register
    def _(self, op: s.TableMapValues) -> Any:
        if op.with_key:
            return self.parent(op).map_values_with_key(op.mapper, **self.named_store(op))
        return self.parent(op).map_values(lambda v: op.mapper(None, v), **self.named_store(op))

    @make.register
    def _(self, op: s.TransformValues) -> Any:
        supplier = partial(_Transformer, op)
        return self.parent(op).transform_values(supplier, *s.stores_used(op), **self.named_store(op))

    @make.register
    def _(self, op: s.TableGroup) -> Any:
        name = op.name if op.named else None

        def mapper(key: Any, value: Any) -> tuple[Any, Any]:
            return op.key(as_text(key), value), op.value(as_text(key), value)

        return self.parent(op).group_by(mapper, name=name, **self.serdes)

    @make.register
    def _(self, op: s.TableAggregate) -> Any:
        arguments: dict[str, tuple[Any, ...]] = {
            "count": (),
            "aggregate": (op.add.start, op.add, op.subtract),
            "reduce": (op.combine, op.separate),
        }
        return getattr(self.parent(op), op.how)(*arguments[op.how], **self.named_store(op))

    # Joins.

    @make.register
    def _(self, op: s.VersionedTable) -> Any:
        store = Store(op.store_name, versioned=HISTORY_MS, **self.serdes)
        return self.builder.table(op.topic, store=store, name=op.name, **self.log_serdes)

    @make.register
    def _(self, op: s.StreamJoin) -> Any:
        within = op.within
        other_value = {"other_value": self.serdes["value"]} if self.serdes else {}
        return getattr(self.parent(op), op.kind)(
            self.handles[op.other],
            self.joiner(op),
            JoinWindows(within.before, after=within.after, grace=within.grace),
            store=op.store_name,
            **self.joined(op),
            **other_value,
            **self.serdes,
        )

    @make.register
    def _(self, op: s.StreamTableJoin) -> Any:
        return self.look_up(op, self.joiner(op))

    def look_up(self, op: s.StreamTableJoin, joiner: Any) -> Any:
        return getattr(self.parent(op), op.kind)(
            self.handles[op.other], joiner, grace=op.grace, **self.joined(op), **self.serdes
        )

    @make.register
    def _(self, op: s.GlobalTableJoin) -> Any:
        return self.look_up_globally(op, self.joiner(op))

    def look_up_globally(self, op: s.GlobalTableJoin, joiner: Any) -> Any:
        join = getattr(self.parent(op), op.kind)
        return join(self.handles[op.other], joiner, key_of=op.key_of, **self.joined(op))

    @make.register
    def _(self, op: s.TableJoin) -> Any:
        store = {"store": self.store(op)} if op.store.named else {}
        join = getattr(self.parent(op), op.kind)
        return join(self.handles[op.other], self.joiner(op), **self.joined(op), **store)

    @staticmethod
    def joiner(op: Any) -> Any:
        if op.with_key:
            return op.joiner
        return lambda left, right: op.joiner(None, left, right)

    @staticmethod
    def joined(op: Any) -> dict[str, Any]:
        return {"with_key": op.with_key, "name": op.name}


def as_text(key: Any) -> Any:
    """A key, or one with its window, as the operators behind a windowed table see it."""
    if not isinstance(key, Windowed):
        return key
    return f"{key.key}@{key.window.start}-{key.window.end}"


def windows_of(cut: s.Cut) -> Any:
    """The windows that a cut means."""
    match cut.kind:
        case "time":
            return TimeWindows(cut.size, advance=cut.advance, grace=cut.grace)
        case "unlimited":
            return UnlimitedWindows(cut.start)
        case "sliding":
            return SlidingWindows(cut.size, cut.grace)
        case "session":
            return SessionWindows(cut.size, cut.grace)


def merger_of(cut: s.Cut, fold: Any, combine: Any) -> tuple[Any, ...]:
    """What an aggregation of sessions needs besides."""
    merge = s.merger(fold, combine)
    return (lambda _key, one, other: merge(one, other),) if cut.kind == "session" else ()


class _Keeper(Processor[Any, Any, Any, Any]):
    """Writes what it is given into a global store."""

    def __init__(self, store: str) -> None:
        self.store = store

    def process(self, record: Record[Any, Any]) -> None:
        if record.key is not None:
            self.context.state_store(self.store).put(record.key, record.value)


class _Free(Processor[Any, Any, Any, Any]):
    def __init__(self, op: s.Process) -> None:
        self.op = op

    def init(self, context: Any) -> None:
        super().init(context)
        self.program = Program(self.op, context, Record, _scheduler(context))

    def process(self, record: Record[Any, Any]) -> None:
        self.program.process(record)


class _Fixed(FixedKeyProcessor[Any, Any, Any]):
    def __init__(self, op: s.Process) -> None:
        self.op = op

    def init(self, context: Any) -> None:
        super().init(context)
        self.program = Program(self.op, context, FixedKeyRecord, _scheduler(context))

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        self.program.process(record)


class _Transformer:
    def __init__(self, op: s.TransformValues) -> None:
        self.op = op

    def init(self, context: Any) -> None:
        self.context = context

    def transform(self, key: Any, value: Value) -> Value:
        return transform(self.op, self.context, key, value)

    def close(self) -> None: ...


def _scheduler(context: Any) -> Callable[[s.Punctuator, Callable[[int], None]], Any]:
    def schedule(one: s.Punctuator, call: Callable[[int], None]) -> Any:
        return context.schedule(one.interval_ms, CLOCKS[one.clock], call)

    return schedule
