"""Joins among other operators: windows, suppressions, groups, one stream in several joins, optimisations."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.semantics.join_shapes import KINDS, letter_of, plus, to_out, word_versions
from tests.semantics.registry import before_and_after, case, dsl
from tests.semantics.shapes import NUMBERS, WORDS, number_store, text, word_store, word_table, words
from tests.semantics.window_shapes import KEEP, in_sessions, in_windows, number_windows

from millstream import (
    JoinWindows,
    KStream,
    KTable,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)

Stream = KStream[Any, Any]
Table = KTable[Any, Any]

both = before_and_after("all")


def left(b: StreamsBuilder) -> Stream:
    return words(b, "left")


def right(b: StreamsBuilder) -> Stream:
    return words(b, "right")


def lefts(b: StreamsBuilder) -> Table:
    return word_table(b, "left", "lefts")


def rights(b: StreamsBuilder, topic: str = "right") -> Table:
    return word_table(b, topic, "rights")


def rekeyed(stream: Stream) -> Stream:
    return stream.select_key(lambda k, v: letter_of(v))


def in_tens(b: StreamsBuilder, topic: str) -> Table:
    windowed = words(b, topic).group_by_key(**WORDS).windowed_by(TimeWindows(10, grace=5))
    return windowed.count(store=number_windows(f"{topic}s", KEEP))


def in_gaps(b: StreamsBuilder, topic: str) -> Table:
    sessions = words(b, topic).group_by_key(**WORDS).windowed_by(SessionWindows(4, grace=20))
    return sessions.count(store=number_windows(f"{topic}s", KEEP))


def suppressed(b: StreamsBuilder, topic: str) -> Table:
    return word_table(b, topic, f"{topic}s").suppress(Suppressed.until_time_limit(6))


def with_stream(method: str, one: Stream, other: Stream, windows: JoinWindows, **options: Any) -> Stream:
    pairs: Stream = getattr(one, method)(other, plus, windows, **WORDS, other_value=serdes.string, **options)
    return pairs


def with_table(method: str, stream: Stream, table: Table, **options: Any) -> Stream:
    found: Stream = getattr(stream, method)(table, plus, **{**WORDS, **options})
    return found


def _windowed_tables(b: StreamsBuilder, method: str) -> None:
    pairs: Table = getattr(in_tens(b, "left"), method)(in_tens(b, "right"), plus)
    pairs.to_stream().to("out", key=in_windows(10), value=serdes.string)


def _session_tables(b: StreamsBuilder, method: str) -> None:
    pairs: Table = getattr(in_gaps(b, "left"), method)(in_gaps(b, "right"), plus)
    pairs.to_stream().to("out", key=in_sessions(), value=serdes.string)


def _register() -> None:
    for method in KINDS:
        case(f"joins_windowed_tables_{method}", partial(_windowed_tables, method=method))
        case(f"joins_session_tables_{method}", partial(_session_tables, method=method))


_register()


@dsl
def joins_suppressed_table_on_the_right(b: StreamsBuilder) -> None:
    to_out(lefts(b).join(suppressed(b, "right"), plus))


@dsl
def joins_stream_with_suppressed_table(b: StreamsBuilder) -> None:
    with_table("left_join", left(b), suppressed(b, "right")).to("out", **WORDS)


@dsl
def joins_cogroup_with_table(b: StreamsBuilder) -> None:
    one = left(b).group_by_key(**WORDS).cogroup(lambda k, v, agg: f"{agg}l{v}")
    cogrouped = one.cogroup(right(b).group_by_key(**WORDS), lambda k, v, agg: f"{agg}r{v}")
    lists = cogrouped.aggregate(lambda: "", store=word_store("lists"))
    counts = right(b).group_by_key(**WORDS).count(store=number_store("counts"))
    to_out(lists.left_join(counts, plus))


@dsl
def joins_pairs_as_table(b: StreamsBuilder) -> None:
    stream = left(b)
    pairs = with_stream("outer_join", stream, right(b), JoinWindows(5)).to_table(store=word_store("pairs"))
    with_table("left_join", stream, pairs).to("out", **WORDS)


@dsl
def joins_changes_of_one_table_with_another(b: StreamsBuilder) -> None:
    with_table("left_join", lefts(b).to_stream(), rights(b)).to("out", **WORDS)


@dsl
def joins_versioned_with_grace_into_table(b: StreamsBuilder) -> None:
    history = b.table("right", **WORDS, store=word_versions("rights", 50))
    stream = left(b).filter(lambda k, v: k is not None)
    rows: Table = with_table("left_join", stream, history, grace=6).to_table(store=word_store("rows"))
    to_out(rows.outer_join(history, plus))


@dsl
def joins_windowed_counts_with_table(b: StreamsBuilder) -> None:
    counts = in_tens(b, "left").to_stream(lambda k, v: k.key)
    with_table("join", counts, rights(b), value=serdes.int64).to("out", **WORDS)


@dsl
def joins_grouped_table_with_its_table(b: StreamsBuilder) -> None:
    rows = lefts(b)
    grouped = rights(b).group_by(lambda k, v: (letter_of(v), v), **WORDS)
    to_out(rows.outer_join(grouped.count(store=number_store("counts")), plus))


@dsl
def joins_then_windows(b: StreamsBuilder) -> None:
    pairs = with_stream("left_join", left(b), right(b), JoinWindows(4, grace=3))
    windowed = pairs.group_by_key(**WORDS).windowed_by(TimeWindows(20, grace=10))
    counts = windowed.count(store=number_windows("counts", KEEP))
    by_start = counts.to_stream(lambda k, v: f"{k.key}@{k.window.start}")
    by_start.map_values(text).to("out", **WORDS)


@dsl
def joins_then_totals(b: StreamsBuilder) -> None:
    digits: Stream = left(b).map_values(lambda v: None if v is None else int(v[1]))
    joined = digits.join(rights(b), lambda one, other: one * 10 + int(other[1]), **NUMBERS)
    totals = joined.group_by_key(**NUMBERS).reduce(lambda agg, v: agg + v, store=number_store("totals"))
    totals.to_stream().map_values(text).to("out", **WORDS)


@dsl
def joins_table_with_stored_join(b: StreamsBuilder) -> None:
    one, other = lefts(b), rights(b)
    pairs = one.outer_join(other, plus, store=word_store("pairs"))
    again = pairs.join(one, plus, store=word_store("again"))
    to_out(again.filter(lambda k, v: "null" not in v))


@dsl
def joins_mapped_with_filtered_join(b: StreamsBuilder) -> None:
    one, other = lefts(b), rights(b)
    pairs = one.left_join(other, plus).filter(lambda k, v: "w3" not in v)
    to_out(pairs.map_values(lambda v: v + "!").outer_join(other.filter(lambda k, v: v != "w2"), plus))


@dsl
def joins_changes_of_a_table_with_it(b: StreamsBuilder) -> None:
    rows = lefts(b)
    with_table("left_join", rows.to_stream(), rows).to("out", **WORDS)


@dsl
def joins_changes_of_an_uncached_table_with_it(b: StreamsBuilder) -> None:
    rows = b.table("left", **WORDS, store=word_store("lefts", caching=False))
    with_table("left_join", rows.to_stream(), rows).to("out", **WORDS)


@dsl
def joins_branches_of_one_stream(b: StreamsBuilder) -> None:
    small = left(b).filter(lambda k, v: v is not None and v[1] < "5")
    large = left(b).filter(lambda k, v: v is not None and v[1] >= "5")
    with_stream("outer_join", small, large, JoinWindows(6, 3, grace=2)).to("out", **WORDS)


@dsl
def joins_a_stream_with_its_windows(b: StreamsBuilder) -> None:
    stream = left(b)
    windowed = stream.group_by_key(**WORDS).windowed_by(TimeWindows(10, grace=5))
    counts = windowed.count(store=number_windows("counts", KEEP)).to_stream(lambda k, v: k.key)
    with_table("left_join", stream, counts.to_table(store=number_store("latest"))).to("out", **WORDS)


@both
def joins_of_one_rekeyed_stream(b: StreamsBuilder) -> None:
    stream = rekeyed(left(b))
    with_stream("join", stream, right(b), JoinWindows(6)).to("out", **WORDS)
    with_table("left_join", stream, rights(b, "right2")).to("out2", **WORDS)


@both
def joins_of_one_rekeyed_stream_named(b: StreamsBuilder) -> None:
    stream = rekeyed(left(b))
    with_stream("join", stream, right(b), JoinWindows(6), name="pairs").to("out", **WORDS)
    with_table("join", stream, rights(b, "right2"), name="enrich").to("out2", **WORDS)


@both
def joins_and_groups_of_one_rekeyed_stream(b: StreamsBuilder) -> None:
    stream = rekeyed(left(b))
    known = stream.filter(lambda k, v: v is not None)
    with_stream("join", known, right(b), JoinWindows(6)).to("out", **WORDS)
    counts = stream.group_by_key(**WORDS).count(store=number_store("counts"))
    rights(b, "right2").outer_join(counts, plus).to_stream().to("out2", **WORDS)


@both
def joins_of_source_tables(b: StreamsBuilder) -> None:
    rows = lefts(b)
    with_table("join", words(b, "left2"), rows).to("out", **WORDS)
    rows.outer_join(word_table(b, "right"), plus).to_stream().to("out2", **WORDS)


@both
def joins_with_itself_rekeyed(b: StreamsBuilder) -> None:
    stream = rekeyed(left(b))
    with_stream("join", stream, stream, JoinWindows(3)).to("out", **WORDS)
    right(b).foreach(lambda k, v: None)
    with_table("left_join", stream, rights(b, "right2")).to("out2", **WORDS)


@dsl
def joins_with_all_kinds_of_tables(b: StreamsBuilder) -> None:
    everywhere = b.global_table("global", **WORDS, store=word_store("everywhere"))
    pairs = with_stream("left_join", left(b), right(b), JoinWindows(6, grace=2))
    found = with_table("left_join", pairs, word_table(b, "third", "thirds"))
    found.join(everywhere, plus, key_of=lambda k, v: k).to("out", **WORDS)
