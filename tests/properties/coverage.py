"""What a spec and its run have in them, so that a test can tell whether the seeds try everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.properties import spec as s
from tests.properties.inputs import Epoch
from tests.properties.oracle import Oracle

OPERATORS = tuple(
    kind
    for kind in vars(s).values()
    if isinstance(kind, type) and issubclass(kind, s.Op) and kind is not s.Op
)


def features_of(spec: s.Spec) -> set[str]:
    """The features of a spec, by name."""
    return {
        f"{spec.partitions} partitions",
        f"{spec.serdes} serdes",
        f"on poison {spec.on_poison}",
        *(feature for op in spec.ops for feature in _features(op)),
        *_shapes(spec),
    }


def happenings(spec: s.Spec, epochs: Sequence[Epoch]) -> set[str]:
    """Which operators got records, and what else happened when the oracle ran the spec."""
    oracle = Oracle(spec)
    for epoch in epochs:
        oracle.run_epoch(epoch)
    operators = {op.name: type(op).__name__ for op in spec.ops}
    reached = {operators[name] for name in oracle.visited if name in operators}
    ends = {"some output"} if oracle.outputs else set()
    return {f"{kind} got records" for kind in reached} | set(oracle.events) | ends


def _features(op: s.Op) -> Iterator[str]:
    kind = type(op).__name__
    yield kind
    for name in (
        "how",
        "negated",
        "with_key",
        "by_pattern",
        "own_processor",
        "default",
        "fixed_key",
        "show",
        "named",
    ):
        if hasattr(op, name):
            yield f"{kind}: {name} {getattr(op, name)}"
    for name in ("key", "partitions", "partitioner"):
        if hasattr(op, name):
            yield f"{kind}: {name} {'not given' if getattr(op, name) is None else 'given'}"
    if isinstance(store := getattr(op, "store", None), s.TableStore):
        yield f"{kind}: store named {store.named}, caching {store.caching}"
    yield from _features_of_kind(op)


def _features_of_kind(op: s.Op) -> Iterator[str]:
    kind = type(op).__name__
    match op:
        case s.Aggregate(how="aggregate") if op.fold.in_place:
            yield f"{kind}: in place"
        case s.Source() | s.To():
            yield f"{kind}: {len(op.topics)} topics"
        case s.Process():
            yield from _features_of_process(op)
        case s.WindowedAggregate() | s.WindowedCogroup():
            yield from _features_of_windows(op)
        case s.StreamJoin() | s.StreamTableJoin() | s.GlobalTableJoin() | s.TableJoin():
            yield from _features_of_joins(op)


def _features_of_joins(
    op: s.StreamJoin | s.StreamTableJoin | s.GlobalTableJoin | s.TableJoin,
) -> Iterator[str]:
    kind = type(op).__name__
    yield f"{kind}: {op.kind}"
    if isinstance(op, s.StreamTableJoin) and op.grace is not None:
        yield f"{kind}: {op.kind} with grace"


def _features_of_windows(op: s.WindowedAggregate | s.WindowedCogroup) -> Iterator[str]:
    kind = type(op).__name__
    yield f"{kind}: {op.cut.kind} windows, caching {op.store.caching}"
    if isinstance(op, s.WindowedAggregate) and op.on_close:
        yield f"{kind}: {op.cut.kind} windows on close"


def _features_of_process(op: s.Process) -> Iterator[str]:
    for step in op.steps:
        yield f"step {type(step).__name__}"
        if isinstance(step, s.UseStore):
            yield f"step {step.how}"
        if isinstance(step, s.Forward):
            yield f"step Forward: show {step.show}"
            yield f"step Forward: {'to one child' if step.child is not None else 'to all'}"
            yield f"step Forward: {'new' if step.new_key else 'same'} key"
            yield f"step Forward: {'later' if step.time_shift else 'same time'}"
            yield f"step Forward: {'more' if step.add_header else 'same'} headers"
    for one in op.punctuators:
        yield f"punctuator: {one.clock} {one.action}"
        yield f"punctuator: once {one.once}"
        yield f"punctuator: {'to one child' if one.child is not None else 'to all'}"


def _shapes(spec: s.Spec) -> Iterator[str]:
    above = {op.id: spec.above(op.id) for op in spec.ops}
    fixed = [op.topics[0] for op in spec.ops if isinstance(op, s.To) and len(op.topics) == 1]
    if len(set(fixed)) < len(fixed):
        yield "two sinks to one topic"
    if any(isinstance(op, s.StreamJoin | s.TableJoin) and op.parent == op.other for op in spec.ops):
        yield "a join with itself"
    if any(isinstance(op, s.Merge) and above[op.parent] & above[op.other] for op in spec.ops):
        yield "a diamond"
    users = [store for op in spec.ops for store in s.stores_used(op)]
    if len(set(users)) < len(users):
        yield "a store that is shared"
    sources = [op.topics for op in spec.ops if isinstance(op, s.Source)]
    if len(set(sources)) < len(sources):
        yield "a topic read twice"
    for op in spec.ops:
        stacked = [spec.op(number) for number in above[op.id]]
        if sum(isinstance(one, s.Aggregate | s.TableAggregate | s.Cogroup) for one in stacked) > 2:
            yield "aggregations of aggregations of aggregations"
    groups = [op.parent for op in spec.ops if isinstance(op, s.Aggregate | s.TableAggregate)]
    if any(groups.count(group) > 1 and getattr(spec.op(group), "named", False) for group in groups):
        yield "two aggregations of one named group"
