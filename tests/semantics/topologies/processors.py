"""process and process_values: forwarding, stores, and what the context tells."""

from __future__ import annotations

from tests.semantics.registry import dsl
from tests.semantics.shapes import (
    NULL,
    NUMBERS,
    WORDS,
    each,
    each_value,
    number_store,
    text,
    word_store,
    word_table,
    words,
)

from millstream import (
    FixedKeyProcessorContext,
    FixedKeyRecord,
    ProcessorContext,
    Record,
    StoreBuilder,
    StreamsBuilder,
    serdes,
    stores,
)
from millstream.record import ValueAndTimestamp


def _counts(*, caching: bool = False) -> StoreBuilder:
    return stores.key_value("counts", key=serdes.string, value=serdes.int64, caching=caching)


def _count(context: ProcessorContext[str, int], record: Record[str, str]) -> None:
    """Count the records of a key in the store "counts" and forward the count."""
    counts = context.state_store("counts")
    counts.put(record.key, (counts.get(record.key) or 0) + 1)
    context.forward(record.with_value(counts.get(record.key)))


def _read(context: ProcessorContext[str, int], record: Record[str, str]) -> None:
    context.forward(record.with_value(context.state_store("counts").get(record.key)))


def _count_value(context: FixedKeyProcessorContext[str, int], record: FixedKeyRecord[str, str]) -> None:
    counts = context.state_store("counts")
    counts.put(record.key, (counts.get(record.key) or 0) + 1)
    context.forward(record.with_value(counts.get(record.key)))


def _forward(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
    context.forward(record)


def _position(context: ProcessorContext[str, str]) -> str:
    metadata = context.record_metadata
    assert metadata is not None
    return f"{metadata.topic}/{metadata.partition}/{metadata.offset}"


@dsl
def process(b: StreamsBuilder) -> None:
    def twice(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        if record.value is not None:
            context.forward(record.with_value(record.value + "1"))
            context.forward(record.with_key("other").with_value(record.value + "2"))

    words(b, "in").process(each(twice)).to("out", **WORDS)


@dsl
def process_named(b: StreamsBuilder) -> None:
    words(b, "in").process(each(_forward), name="pass").to("out", **WORDS)


@dsl
def process_without_output(b: StreamsBuilder) -> None:
    def swallow(context: ProcessorContext[None, None], record: Record[str, str]) -> None:
        pass

    stream = words(b, "in")
    stream.process(each(swallow))
    stream.to("out")


@dsl
def process_forwards_without_children(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.process(each(_forward))
    stream.to("out")


@dsl
def process_with_store(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    words(b, "in").process(each(_count), "counts").to("out", **NUMBERS)


@dsl
def process_with_store_named(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    words(b, "in").process(each(_count), "counts", name="counter").to("out", **NUMBERS)


@dsl
def process_with_cached_store(b: StreamsBuilder) -> None:
    b.add_state_store(_counts(caching=True))
    words(b, "in").process(each(_count), "counts").to("out", **NUMBERS)


@dsl
def process_writer_before_reader(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    stream = words(b, "in")
    stream.process(each(_count), "counts").to("out", **NUMBERS)
    stream.process(each(_read), "counts").to("read", **NUMBERS)


@dsl
def process_reader_before_writer(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    stream = words(b, "in")
    stream.process(each(_read), "counts").to("read", **NUMBERS)
    stream.process(each(_count), "counts").to("out", **NUMBERS)


@dsl
def process_parent_and_child_share_a_store(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    parent = words(b, "in").process(each(_count), "counts", name="parent")
    child = parent.map_values(lambda v: f"v{v}").process(each(_count), "counts", name="child")
    child.to("out", **NUMBERS)


@dsl
def process_child_reads_between_writes(b: StreamsBuilder) -> None:
    def write_and_forward(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        counts = context.state_store("counts")
        for number in (10, 20, 30):
            counts.put(record.key, number)
            context.forward(record)
        counts.delete(record.key)
        context.forward(record)

    b.add_state_store(_counts())
    parent = words(b, "in").process(each(write_and_forward), "counts")
    parent.process(each(_read), "counts").to("out", **NUMBERS)


@dsl
def process_shared_store_joins_two_sources(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    words(b, "in").process(each(_count), "counts").to("out", **NUMBERS)
    words(b, "other").process(each(_read), "counts").to("read", **NUMBERS)


@dsl
def process_reads_the_store_of_a_table(b: StreamsBuilder) -> None:
    def look_up(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        row = context.state_store("rows-store").get(record.key)
        context.forward(record.with_value("none" if row is None else f"{row.value}@{row.timestamp}"))

    word_table(b, "rows", "rows-store")
    words(b, "in").process(each(look_up), "rows-store").to("out", **WORDS)


@dsl
def process_reads_the_store_of_a_count(b: StreamsBuilder) -> None:
    def look_up(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        count = context.state_store("counts").get(record.key)
        context.forward(record.with_value("none" if count is None else f"{count.value}@{count.timestamp}"))

    stream = words(b, "in")
    stream.group_by_key(**WORDS).count(store=number_store("counts"))
    stream.process(each(look_up), "counts").to("out", **WORDS)


@dsl
def process_forwards_to_named_children(b: StreamsBuilder) -> None:
    def route(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record, "left" if record.value == "x" else "right")
        context.forward(record.with_value("both"))

    routed = words(b, "in").process(each(route))
    routed.map_values(lambda v: f"left {text(v)}", name="left").to("out", **WORDS)
    routed.map_values(lambda v: f"right {text(v)}", name="right").to("out", **WORDS)


@dsl
def process_forwarding_to_unknown_child_fails(b: StreamsBuilder) -> None:
    def forward_to_value(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record, record.value)

    words(b, "in").process(each(forward_to_value)).filter(lambda k, v: True, name="child").to("out", **WORDS)


@dsl
def process_changes_timestamps(b: StreamsBuilder) -> None:
    def later_and_earlier(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record.with_timestamp(record.timestamp + 1000))
        context.forward(record.with_timestamp(0))
        context.forward(record)

    words(b, "in").process(each(later_and_earlier)).to("out", **WORDS)


@dsl
def process_values_changes_timestamps_before_count(b: StreamsBuilder) -> None:
    def later_and_zero(context: FixedKeyProcessorContext[str, str], record: FixedKeyRecord[str, str]) -> None:
        context.forward(record.with_timestamp(record.timestamp + 1000))
        context.forward(record.with_timestamp(0))

    grouped = words(b, "in").process_values(each_value(later_and_zero)).group_by_key(**WORDS)
    grouped.count(store=number_store("tally")).to_stream().to("out", **NUMBERS)


@dsl
def process_negative_timestamp_fails(b: StreamsBuilder) -> None:
    def earlier(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record.with_timestamp(record.timestamp - 5))

    words(b, "in").process(each(earlier)).to("out", **WORDS)


@dsl
def process_metadata(b: StreamsBuilder) -> None:
    def where(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record.with_value(_position(context)))

    b.stream(["in", "other"], **WORDS).process(each(where)).to("out", **WORDS)


@dsl
def process_metadata_behind_other_operators(b: StreamsBuilder) -> None:
    def where(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record.with_value(f"{record.value} {_position(context)}"))

    merged = words(b, "in").flat_map_values(lambda v: ["1", "2"]).merge(words(b, "other"))
    merged.process(each(where)).to("out", **WORDS)


@dsl
def process_metadata_behind_a_cached_table(b: StreamsBuilder) -> None:
    def where(context: ProcessorContext[str, str], record: Record[str, int]) -> None:
        context.forward(record.with_value(f"{record.value} {_position(context)}"))

    counts = words(b, "in").group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().process(each(where)).to("out", **WORDS)


@dsl
def process_context(b: StreamsBuilder) -> None:
    def observe(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        stream, system = context.current_stream_time_ms(), context.current_system_time_ms()
        context.forward(record.with_value(f"task {context.task_id} stream {stream} system {system}"))

    words(b, "in").process(each(observe)).to("out", **WORDS)


@dsl
def process_stream_time_of_two_topics(b: StreamsBuilder) -> None:
    def observe(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record.with_value(str(context.current_stream_time_ms())))

    words(b, "in").merge(words(b, "other")).process(each(observe)).to("out", **WORDS)


@dsl
def process_commits(b: StreamsBuilder) -> None:
    def commit(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.commit()
        context.forward(record)

    words(b, "in").process(each(commit)).to("out", **WORDS)


@dsl
def process_raising_fails(b: StreamsBuilder) -> None:
    def forward_and_raise(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record)
        if record.value is None:
            raise ValueError("no value")

    words(b, "in").process(each(forward_and_raise)).to("out", **WORDS)


@dsl
def process_reading_unconnected_store_fails(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    stream = words(b, "in")
    stream.process(each(_count), "counts")
    stream.process(each(_read)).to("out", **NUMBERS)


@dsl
def process_writing_to_global_store_fails(b: StreamsBuilder) -> None:
    def write(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.state_store("everywhere").put(record.key, ValueAndTimestamp(record.value, 1))

    b.global_table("global", store=word_store("everywhere"))
    words(b, "in").process(each(write)).to("out", **WORDS)


@dsl
def process_sets_the_repartition_flag(b: StreamsBuilder) -> None:
    def rekey(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
        context.forward(record.with_key(record.value))

    grouped = words(b, "in").process(each(rekey)).group_by_key(**WORDS)
    grouped.count(store=number_store("tally")).to_stream().to("out", **NUMBERS)


@dsl
def process_values(b: StreamsBuilder) -> None:
    def value_then_null(
        context: FixedKeyProcessorContext[str, str], record: FixedKeyRecord[str, str]
    ) -> None:
        if record.value is not None:
            context.forward(record.with_value(record.key + record.value))
            context.forward(record.with_value(NULL))

    words(b, "in").process_values(each_value(value_then_null)).to("out", **WORDS)


@dsl
def process_values_with_store(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    words(b, "in").process_values(each_value(_count_value), "counts").to("out", **NUMBERS)


@dsl
def process_values_named(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    words(b, "in").process_values(each_value(_count_value), "counts", name="counter").to("out", **NUMBERS)


@dsl
def process_values_keeps_the_key(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    grouped = words(b, "in").process_values(each_value(_count_value), "counts").group_by_key(**NUMBERS)
    grouped.count(store=number_store("tally")).to_stream().to("out", **NUMBERS)


@dsl
def process_then_to_table(b: StreamsBuilder) -> None:
    b.add_state_store(_counts())
    rows = words(b, "in").process(each(_count), "counts").to_table(store=number_store("rows"))
    rows.to_stream().to("out")


@dsl
def process_two_stores(b: StreamsBuilder) -> None:
    def remember(context: ProcessorContext[str, int], record: Record[str, str]) -> None:
        counts, last = context.state_store("counts"), context.state_store("last")
        before = last.get(record.key)
        # A row without a value is no row, as in Java.
        row = None if record.value is None else ValueAndTimestamp(record.value, record.timestamp)
        last.put(record.key, row)
        counts.put(record.key, -1 if before is None else before.timestamp)
        context.forward(record.with_value(counts.get(record.key)))

    b.add_state_store(_counts())
    b.add_state_store(stores.timestamped_key_value("last", key=serdes.string, value=serdes.string))
    words(b, "in").process(each(remember), "last", "counts").to("out", **NUMBERS)
