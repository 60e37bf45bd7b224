"""Records per second on Spark, on both engines, against what Spark offers itself, net of start-up.

Both get the same records in batches of the same size, in turns; the first batch of each turn warms up and
does not count. Of the others the best one counts, on both sides: whatever else runs there only slows them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from benchmarks.applications import (
    ENGINES,
    PARTITIONS,
    EngineName,
    append,
    application,
    count_by_key,
    count_grouped,
    keyed_rows,
    lines,
    run_to_the_end,
    spark_context,
    word_count,
    word_count_in_columns,
    workplace,
)
from benchmarks.figures import Figure, Scale, at_least, measured, ratio
from benchmarks.spark_native import (
    counted,
    counted_by_processor,
    counted_words,
    native_session,
    seconds_per_batch,
    write_files,
)
from millstream import Topology
from millstream.log import FileLog, TopicPartition
from millstream.types import Offset, Partition

__all__ = ["throughput"]

_WORDS_PER_LINE = 8
_SAMPLE = 20_000
_TURNS = 2
_SMALL = "count by key, epochs of 20,000 records"


@dataclass(frozen=True, slots=True)
class _Work:
    """Records for several batches, and how many of what users count are in each batch."""

    name: str
    topic: str
    batches: list[pa.RecordBatch]
    units: int


def throughput(scale: Scale) -> list[Figure]:
    """Count by key without and with a shuffle, and word count."""
    per_batch, keys = scale.of(1_000_000, 200_000), scale.of(100_000, 20_000)
    batches = scale.of(5, 3)
    keyed = _Work("count", "in", [keyed_rows(per_batch, keys, number=n) for n in range(batches)], per_batch)
    per_batch = scale.of(250_000, 50_000)
    text = _Work(
        "words", "lines", [lines(per_batch, number=n) for n in range(batches)], per_batch * _WORDS_PER_LINE
    )
    small = [keyed_rows(_SAMPLE, _SAMPLE // 5, number=n) for n in range(3)]
    sample = _Work("sample", "in", small, _SAMPLE)
    ours: dict[str, Figure] = {}
    native: dict[str, Figure] = {}
    with workplace() as root:
        for number in range(scale.of(_TURNS, 1)):
            folder = root / str(number)
            folder.mkdir()
            with spark_context(folder) as spark:
                for name, work, build in (
                    ("count by key, group_by_key", keyed, count_by_key),
                    ("count by key, group_by", keyed, count_grouped),
                    ("word count, Python split", text, word_count),
                    ("word count, columns", text, word_count_in_columns),
                    (_SMALL, sample, count_by_key),
                ):
                    for engine in ENGINES:
                        figure = _ours(folder, spark, work, name, build, engine)
                        _note(ours, f"{name}, {engine}", figure)
            # Second, in a JVM that is warm by now.
            slow = sample if number == 0 and not scale.quick else None
            for name, figure in _native(folder, keyed, text, slow).items():
                _note(native, name, figure)
    found = [*native.values(), *ours.values()]
    for case, other, goal in (
        ("count by key, group_by_key", "count", 5),
        ("count by key, group_by", "count", 3),
        ("word count, Python split", "words", 2),
        ("word count, columns", "words", 4),
    ):
        for engine in ENGINES:
            name, figure = f"{case}, {engine} engine", ours[f"{case}, {engine}"]
            found.append(at_least(ratio(f"{name}: times Spark native", figure, native[other]), goal))
            thrown_away = native[f"{other}, thrown away"]
            times = ratio(f"{name}: times Spark native that writes nothing", figure, thrown_away)
            found.append(at_least(times, goal))
    if "processor" in native:
        slow_one = native["processor"]
        for engine in ENGINES:
            by_key = ours[f"count by key, group_by_key, {engine}"]
            name = f"count by key, group_by_key, {engine} engine: times transformWithState"
            same = f"{_SMALL}, {engine} engine: times transformWithState"
            found.append(at_least(ratio(name, by_key, slow_one), 100))
            found.append(ratio(same, ours[f"{_SMALL}, {engine}"], slow_one))
    return found


def _ours(
    folder: Path,
    spark: SparkContext,
    work: _Work,
    name: str,
    build: Callable[[], Topology],
    engine: EngineName,
) -> Figure:
    place = folder / f"{name}-{engine}".replace(" ", "-").replace(",", "")
    log = FileLog(place / "log")
    for batch in work.batches:
        append(log, work.topic, batch)
    # A little more than a fourth: partitions are not exactly equal, and nobody wants a small last epoch.
    per_partition = int(1.02 * work.batches[0].num_rows / PARTITIONS)
    with application(build(), place, spark=spark, max_records=per_partition, engine=engine) as app:
        results = run_to_the_end(app)
    _check(log, work.units * len(work.batches))
    per_record = work.units / work.batches[0].num_rows
    runs = [result.records * per_record / result.seconds for result in results[1:]]
    return Figure(f"{name}: {engine} engine", max(runs), "records/s", runs, group=_group(work))


def _check(log: FileLog, expected: int) -> None:
    """The last counts of all keys add up to all that there was to count."""
    last: dict[bytes, int] = {}
    for number in range(PARTITIONS):
        for batch in log.read(TopicPartition("out", Partition(number)), Offset(0)):
            columns = (batch.records.column(0).to_pylist(), batch.records.column(1).to_pylist())
            last |= {key: int.from_bytes(count) for key, count in zip(*columns, strict=True)}
    if sum(last.values()) != expected:
        raise RuntimeError(f"{sum(last.values()):,} were counted, and not {expected:,}")


def _note(figures: dict[str, Figure], name: str, figure: Figure) -> None:
    """Add the runs of another turn. The best batch counts: others may use the machine, and only slow it."""
    before = figures.get(name)
    runs = figure.runs if before is None else [*before.runs, *figure.runs]
    figures[name] = Figure(figure.name, max(runs), figure.unit, runs, group=figure.group)


def _native(folder: Path, keyed: _Work, text: _Work, sample: _Work | None) -> dict[str, Figure]:
    queries: dict[str, tuple[_Work, str, Callable[[DataFrame], DataFrame]]] = {
        "count": (keyed, "count by key: Spark native", counted),
        "words": (text, "word count: Spark native", counted_words),
    }
    if _has_pandas() and sample is not None:
        queries["processor"] = (sample, "count by key: transformWithState", counted_by_processor)
    found: dict[str, Figure] = {}
    with native_session(folder) as session:
        for key, (work, name, query) in queries.items():
            files = folder / f"{key}-files"
            write_files(work.batches, files)
            for more, output in (("", folder / f"{key}-output"), (", thrown away", None)):
                checkpoint = folder / f"{key}{more}-checkpoint"
                taken = seconds_per_batch(session, files, query, checkpoint, output)[1:]
                per_second = [work.units / one for one in taken]
                found[key + more] = measured(name + more, per_second, "records/s", group=_group(work))
    return found


def _group(work: _Work) -> str:
    return "word count: words per second" if work.topic == "lines" else "count by key: records per second"


def _has_pandas() -> bool:
    """Whether what `transformWithState` needs is installed: `make bench` sees to it."""
    return find_spec("pandas") is not None and find_spec("google") is not None
