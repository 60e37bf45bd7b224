"""Whose headers an output carries."""

from __future__ import annotations

from tests.semantics.registry import dsl
from tests.semantics.shapes import (
    NULL,
    NUMBERS,
    WORDS,
    each,
    each_value,
    number_store,
    word_store,
    word_table,
    words,
)

from millstream import (
    FixedKeyProcessorContext,
    FixedKeyRecord,
    ProcessorContext,
    Record,
    StreamsBuilder,
)


def _change(context: FixedKeyProcessorContext[str, str], record: FixedKeyRecord[str, str]) -> None:
    context.forward(record.with_headers((("changed", b"yes"),)))


@dsl
def headers_of_stateless_operators(b: StreamsBuilder) -> None:
    (
        words(b, "in")
        .filter(lambda k, v: v is not None)
        .map(lambda k, v: (v, k))
        .flat_map_values(lambda v: ["1", "2"])
        .peek(lambda k, v: None)
        .select_key(lambda k, v: v)
        .to("out", **WORDS)
    )


@dsl
def headers_kept_exactly(b: StreamsBuilder) -> None:
    words(b, "in").to("out")


@dsl
def headers_of_count(b: StreamsBuilder) -> None:
    words(b, "in").group_by_key(**WORDS).count(store=number_store("counts")).to_stream().to("out")


@dsl
def headers_of_uncached_count(b: StreamsBuilder) -> None:
    counts = words(b, "in").group_by_key(**WORDS).count(store=number_store("counts", caching=False))
    counts.to_stream().to("out")


@dsl
def headers_of_count_behind_repartition(b: StreamsBuilder) -> None:
    counts = words(b, "in").group_by(lambda k, v: v, **WORDS).count(store=number_store("counts"))
    counts.to_stream().to("out")


@dsl
def headers_of_collapsed_updates(b: StreamsBuilder) -> None:
    def several(context: FixedKeyProcessorContext[str, str], record: FixedKeyRecord[str, str]) -> None:
        if record.value is not None:
            context.forward(record.with_headers((("update", b"first"),)))
            context.forward(record.with_headers((("update", b"second"),)))
            context.forward(record)
            last = record.with_headers((("update", b"last"),))
            context.forward(last.with_timestamp(record.timestamp - 1))

    grouped = words(b, "in").process_values(each_value(several)).group_by_key(**WORDS)
    grouped.reduce(lambda agg, v: agg + v, store=word_store("joined")).to_stream().to("out")


def _append_or_delete(key: str, value: str, agg: str) -> str:
    return NULL if value == "delete" else agg + value


@dsl
def headers_and_time_of_collapsed_tombstones(b: StreamsBuilder) -> None:
    def update_and_delete(
        context: FixedKeyProcessorContext[str, str], record: FixedKeyRecord[str, str]
    ) -> None:
        first = record.with_timestamp(record.timestamp + 100)
        context.forward(first.with_headers((("update", b"first"),)))
        second = record.with_value("delete").with_timestamp(record.timestamp + 50)
        context.forward(second.with_headers((("update", b"delete"),)))

    grouped = words(b, "in").process_values(each_value(update_and_delete)).group_by_key(**WORDS)
    grouped.aggregate(lambda: "", _append_or_delete, store=word_store("joined")).to_stream().to("out")


@dsl
def headers_and_time_of_kept_row_then_tombstone(b: StreamsBuilder) -> None:
    def later(context: FixedKeyProcessorContext[str, str], record: FixedKeyRecord[str, str]) -> None:
        moved = record.with_timestamp(record.timestamp + 100)
        context.forward(moved.with_headers((("value", record.value.encode()),)))

    grouped = words(b, "in").process_values(each_value(later)).group_by_key(**WORDS)
    grouped.aggregate(lambda: "", _append_or_delete, store=word_store("joined")).to_stream().to("out")


@dsl
def headers_of_table(b: StreamsBuilder) -> None:
    word_table(b, "in").to_stream().to("out")


@dsl
def headers_of_stored_table(b: StreamsBuilder) -> None:
    kept = word_table(b, "in", "store").filter(lambda k, v: v != "x")
    kept.map_values(lambda v: v + "!").to_stream().to("out", **WORDS)


@dsl
def headers_of_stored_table_operators(b: StreamsBuilder) -> None:
    kept = word_table(b, "in").filter(lambda k, v: v != "x", store=word_store("kept"))
    kept.map_values(lambda v: v + "!", store=word_store("mapped")).to_stream().to("out")


@dsl
def headers_of_table_group_by(b: StreamsBuilder) -> None:
    grouped = word_table(b, "in").group_by(lambda k, v: (v, k), **WORDS)
    grouped.count(store=number_store("counts")).to_stream().to("out")


@dsl
def headers_of_to_table(b: StreamsBuilder) -> None:
    words(b, "in").select_key(lambda k, v: v).to_table(store=word_store("rows")).to_stream().to("out")


@dsl
def headers_of_cogroup(b: StreamsBuilder) -> None:
    both = words(b, "in").group_by_key(**WORDS).cogroup(lambda k, v, agg: f"{agg}{v}")
    both = both.cogroup(words(b, "other").group_by_key(**WORDS), lambda k, v, agg: f"{agg}-{v}")
    both.aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def headers_of_merge(b: StreamsBuilder) -> None:
    words(b, "in").merge(words(b, "other")).to("out", **WORDS)


@dsl
def headers_added_by_processor(b: StreamsBuilder) -> None:
    def add(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record.with_headers((*record.headers, ("seen", record.key.encode()))))

    words(b, "in").process(each(add)).to("out", **WORDS)


@dsl
def headers_removed_by_processor(b: StreamsBuilder) -> None:
    def remove(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record.with_headers(()))

    words(b, "in").process(each(remove)).to("out", **WORDS)


@dsl
def headers_changed_for_one_branch(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.process_values(each_value(_change)).to("out", **WORDS)
    stream.to("other")


@dsl
def headers_changed_before_count(b: StreamsBuilder) -> None:
    grouped = words(b, "in").process_values(each_value(_change)).group_by_key(**WORDS)
    grouped.count(store=number_store("counts")).to_stream().to("out")


@dsl
def headers_changed_before_uncached_count(b: StreamsBuilder) -> None:
    grouped = words(b, "in").process_values(each_value(_change)).group_by_key(**WORDS)
    grouped.count(store=number_store("counts", caching=False)).to_stream().to("out")


@dsl
def headers_changed_behind_count(b: StreamsBuilder) -> None:
    def add(context: FixedKeyProcessorContext[str, int], record: FixedKeyRecord[str, int]) -> None:
        context.forward(record.with_headers((*record.headers, ("count", str(record.value).encode()))))

    counts = words(b, "in").group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().process_values(each_value(add)).to("out", **NUMBERS)
