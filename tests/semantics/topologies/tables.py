"""table and to_table with filter, map_values, transform_values and to_stream, with and without stores."""

from __future__ import annotations

from typing import Any

from tests.semantics.registry import dsl
from tests.semantics.shapes import (
    NUMBERS,
    WORDS,
    number_store,
    number_table,
    numbers,
    text,
    word_store,
    words,
)

from millstream import KTable, StreamsBuilder, serdes, stores


@dsl
def table(b: StreamsBuilder) -> None:
    number_table(b, "in").to_stream().to("out")


@dsl
def table_with_store(b: StreamsBuilder) -> None:
    number_table(b, "in", "store").to_stream().to("out")


@dsl
def table_named(b: StreamsBuilder) -> None:
    rows = b.table("in", **NUMBERS, name="origin", store=number_store("store"))
    rows.to_stream(name="changes").to("out")


@dsl
def table_uncached(b: StreamsBuilder) -> None:
    b.table("in", **NUMBERS, store=number_store("store", caching=False)).to_stream().to("out")


@dsl
def table_nobody_reads(b: StreamsBuilder) -> None:
    number_table(b, "in", "store")


@dsl
def table_nobody_reads_without_store(b: StreamsBuilder) -> None:
    number_table(b, "in")


@dsl
def table_filter(b: StreamsBuilder) -> None:
    number_table(b, "in").filter(lambda k, v: v > 2).to_stream().to("out")


@dsl
def table_filter_of_stored_table(b: StreamsBuilder) -> None:
    number_table(b, "in", "store").filter(lambda k, v: v > 2).to_stream().to("out")


@dsl
def table_filter_with_store(b: StreamsBuilder) -> None:
    number_table(b, "in").filter(lambda k, v: v > 2, store=number_store("big")).to_stream().to("out")


@dsl
def table_filter_with_store_of_stored_table(b: StreamsBuilder) -> None:
    big = number_table(b, "in", "store").filter(lambda k, v: v > 2, store=number_store("big"))
    big.to_stream().to("out")


@dsl
def table_filter_named(b: StreamsBuilder) -> None:
    rows = number_table(b, "in", "store")
    rows.filter(lambda k, v: v > 2, name="big", store=number_store("big-ones")).to_stream().to("out")


@dsl
def table_filter_named_without_store(b: StreamsBuilder) -> None:
    number_table(b, "in").filter(lambda k, v: v > 2, name="big").to_stream().to("out")


@dsl
def table_filter_not(b: StreamsBuilder) -> None:
    number_table(b, "in", "store").filter_not(lambda k, v: v > 2).to_stream().to("out")


@dsl
def table_filter_not_with_store(b: StreamsBuilder) -> None:
    rows = number_table(b, "in")
    rows.filter_not(lambda k, v: v > 2, name="small", store=number_store("small-ones")).to_stream().to("out")


@dsl
def table_filter_of_filter(b: StreamsBuilder) -> None:
    number_table(b, "in").filter(lambda k, v: v > 2).filter(lambda k, v: v < 6).to_stream().to("out")


@dsl
def table_filter_of_filter_of_stored_table(b: StreamsBuilder) -> None:
    number_table(b, "in", "store").filter(lambda k, v: v > 2).filter(lambda k, v: v < 6).to_stream().to("out")


@dsl
def table_filter_of_stored_filter(b: StreamsBuilder) -> None:
    big = number_table(b, "in").filter(lambda k, v: v > 2, store=number_store("big"))
    big.filter(lambda k, v: v < 6).to_stream().to("out")


def _count_all(rows: KTable[str, int]) -> KTable[str, int]:
    """How many rows there are, in the store "counts"."""
    return rows.group_by(lambda k, v: ("all", v), **NUMBERS).count(store=number_store("counts"))


def _sum_all(rows: KTable[str, int]) -> KTable[str, int]:
    """The sum of all rows, in the store "totals"."""
    return rows.group_by(lambda k, v: ("all", v), **NUMBERS).aggregate(
        lambda: 0, lambda k, v, agg: agg + v, lambda k, v, agg: agg - v, store=number_store("totals")
    )


@dsl
def table_filter_before_a_store_is_needed(b: StreamsBuilder) -> None:
    rows = number_table(b, "in")
    rows.filter(lambda k, v: v > 2).to_stream().to("out")
    _count_all(rows).to_stream().to("counts-out")


@dsl
def table_filter_after_a_store_is_needed(b: StreamsBuilder) -> None:
    rows = number_table(b, "in")
    _count_all(rows).to_stream().to("counts-out")
    rows.filter(lambda k, v: v > 2).to_stream().to("out")


@dsl
def table_filter_feeding_a_group(b: StreamsBuilder) -> None:
    _count_all(number_table(b, "in").filter(lambda k, v: v > 2)).to_stream().to("out")


@dsl
def table_filter_of_count(b: StreamsBuilder) -> None:
    counts = numbers(b, "in").group_by_key(**NUMBERS).count(store=number_store("counts"))
    counts.filter(lambda k, v: v % 2 == 0).to_stream().to("out", **NUMBERS)


@dsl
def table_map_values(b: StreamsBuilder) -> None:
    number_table(b, "in").map_values(lambda v: v * 10).to_stream().to("out", **NUMBERS)


@dsl
def table_map_values_of_stored_table(b: StreamsBuilder) -> None:
    number_table(b, "in", "store").map_values(lambda v: v * 10).to_stream().to("out", **NUMBERS)


@dsl
def table_map_values_with_store(b: StreamsBuilder) -> None:
    number_table(b, "in").map_values(lambda v: v * 10, store=number_store("tens")).to_stream().to("out")


@dsl
def table_map_values_named(b: StreamsBuilder) -> None:
    number_table(b, "in").map_values(lambda v: v * 10, name="ten-times").to_stream().to("out", **NUMBERS)


@dsl
def table_map_values_named_with_store(b: StreamsBuilder) -> None:
    tens = number_table(b, "in").map_values(lambda v: v * 10, name="ten-times", store=number_store("tens"))
    tens.to_stream().to("out")


@dsl
def table_map_values_with_key(b: StreamsBuilder) -> None:
    number_table(b, "in").map_values_with_key(lambda k, v: f"{k}{v}").to_stream().to("out", **WORDS)


@dsl
def table_map_values_with_key_and_store(b: StreamsBuilder) -> None:
    rows = number_table(b, "in", "store")
    rows.map_values_with_key(lambda k, v: f"{k}{v}", store=word_store("texts")).to_stream().to("out")


@dsl
def table_map_values_to_null(b: StreamsBuilder) -> None:
    rows = number_table(b, "in", "store")
    rows.map_values(lambda v: v if v > 2 else None, store=number_store("big")).to_stream().to("out")


@dsl
def table_chain(b: StreamsBuilder) -> None:
    big = number_table(b, "in").filter(lambda k, v: v > 2).map_values(lambda v: v + 100)
    big.filter_not(lambda k, v: v == 104).to_stream().to("out", **NUMBERS)


@dsl
def table_chain_of_stored_table(b: StreamsBuilder) -> None:
    big = number_table(b, "in", "store").filter(lambda k, v: v > 2).map_values(lambda v: v + 100)
    big.filter_not(lambda k, v: v == 104).to_stream().to("out", **NUMBERS)


@dsl
def table_chain_with_store_in_the_middle(b: StreamsBuilder) -> None:
    big = number_table(b, "in").filter(lambda k, v: v > 2)
    hundreds = big.map_values(lambda v: v + 100, store=number_store("hundreds"))
    hundreds.filter_not(lambda k, v: v == 104).to_stream().to("out")


@dsl
def table_with_two_children(b: StreamsBuilder) -> None:
    rows = number_table(b, "in", "store")
    filtered = rows.filter(lambda k, v: v > 2).to_stream()
    filtered.map_values(lambda v: f"filtered {text(v)}").to("out", **WORDS)
    mapped = rows.map_values(lambda v: v * 10).to_stream()
    mapped.map_values(lambda v: f"mapped {text(v)}").to("out", **WORDS)
    rows.to_stream().map_values(lambda v: f"plain {text(v)}").to("out", **WORDS)


@dsl
def table_queryable_store_names(b: StreamsBuilder) -> None:
    plain = number_table(b, "in")
    filtered = plain.filter(lambda k, v: True, store=number_store("kept"))
    mapped = filtered.map_values(lambda v: v)
    names = " ".join(text(rows.queryable_store_name) for rows in (plain, filtered, mapped))
    mapped.to_stream().map_values(lambda v: names).to("out", **WORDS)


@dsl
def table_to_stream_with_mapper(b: StreamsBuilder) -> None:
    number_table(b, "in").to_stream(lambda k, v: k + text(v)).to("out", **NUMBERS)


@dsl
def table_to_stream_with_mapper_named(b: StreamsBuilder) -> None:
    number_table(b, "in").to_stream(lambda k, v: k + text(v), name="rekeyed").to("out", **NUMBERS)


@dsl
def table_to_stream_with_mapper_then_count(b: StreamsBuilder) -> None:
    grouped = number_table(b, "in").to_stream(lambda k, v: k + k).group_by_key(**NUMBERS)
    grouped.count(store=number_store("counts")).to_stream().to("out", **NUMBERS)


@dsl
def to_table(b: StreamsBuilder) -> None:
    numbers(b, "in").to_table().to_stream().to("out", **NUMBERS)


@dsl
def to_table_with_store(b: StreamsBuilder) -> None:
    numbers(b, "in").to_table(store=number_store("store")).to_stream().to("out")


@dsl
def to_table_named(b: StreamsBuilder) -> None:
    numbers(b, "in").to_table(name="tabled", store=number_store("store")).to_stream().to("out")


@dsl
def to_table_named_without_store(b: StreamsBuilder) -> None:
    numbers(b, "in").to_table(name="tabled").to_stream().to("out", **NUMBERS)


@dsl
def to_table_then_filter(b: StreamsBuilder) -> None:
    rows = numbers(b, "in").to_table(store=number_store("store"))
    rows.filter(lambda k, v: v > 2).to_stream().to("out")


@dsl
def to_table_unstored_then_filter(b: StreamsBuilder) -> None:
    numbers(b, "in").to_table().filter(lambda k, v: v > 2).to_stream().to("out", **NUMBERS)


@dsl
def to_table_after_rekeying(b: StreamsBuilder) -> None:
    words(b, "in").select_key(lambda k, v: v).to_table(store=word_store("store")).to_stream().to("out")


@dsl
def to_table_after_rekeying_named(b: StreamsBuilder) -> None:
    rekeyed = words(b, "in").select_key(lambda k, v: v)
    rekeyed.to_table(name="tabled", store=word_store("store")).to_stream().to("out")


@dsl
def to_table_after_rekeying_unstored(b: StreamsBuilder) -> None:
    words(b, "in").select_key(lambda k, v: v).to_table().to_stream().to("out", **WORDS)


@dsl
def to_table_of_merge_then_group(b: StreamsBuilder) -> None:
    rows = numbers(b, "in").merge(numbers(b, "more")).to_table(store=number_store("store"))
    _sum_all(rows).to_stream().to("out")


@dsl
def to_table_then_count_of_table(b: StreamsBuilder) -> None:
    rows = words(b, "in").to_table(store=word_store("store"))
    counts = rows.group_by(lambda k, v: (v, k), **WORDS).count(store=number_store("counts"))
    counts.to_stream().to("out")


class _Describe:
    """Spells out key and value; sees None, too."""

    def init(self, context: Any) -> None:
        self.context = context

    def transform(self, key: str, value: int | None) -> str:
        metadata = self.context.record_metadata
        shown = "none" if value is None else value
        return f"{key}={shown} from {metadata.topic} at {metadata.offset}"

    def close(self) -> None:
        pass


class _Counted:
    """How often it was called for the key."""

    def init(self, context: Any) -> None:
        self.seen = context.state_store("seen")

    def transform(self, key: str, value: int | None) -> int:
        now: int = (self.seen.get(key) or 0) + 1
        self.seen.put(key, now)
        return now

    def close(self) -> None:
        pass


def _add_seen(b: StreamsBuilder) -> None:
    b.add_state_store(stores.key_value("seen", key=serdes.string, value=serdes.int64))


@dsl
def table_transform_values(b: StreamsBuilder) -> None:
    number_table(b, "in").transform_values(_Describe).to_stream().to("out", **WORDS)


@dsl
def table_transform_values_of_stored_table(b: StreamsBuilder) -> None:
    number_table(b, "in", "store").transform_values(_Describe).to_stream().to("out", **WORDS)


@dsl
def table_transform_values_with_result_store(b: StreamsBuilder) -> None:
    rows = number_table(b, "in")
    rows.transform_values(_Describe, store=word_store("described"), name="describe").to_stream().to("out")


@dsl
def table_transform_values_named(b: StreamsBuilder) -> None:
    number_table(b, "in").transform_values(_Describe, name="describe").to_stream().to("out", **WORDS)


@dsl
def table_transform_values_with_state(b: StreamsBuilder) -> None:
    _add_seen(b)
    number_table(b, "in").transform_values(_Counted, "seen").to_stream().to("out", **NUMBERS)


@dsl
def table_transform_values_feeding_a_group(b: StreamsBuilder) -> None:
    _add_seen(b)
    _sum_all(number_table(b, "in", "store").transform_values(_Counted, "seen")).to_stream().to("out")


@dsl
def table_transform_values_stored_feeding_a_group(b: StreamsBuilder) -> None:
    _add_seen(b)
    rows = number_table(b, "in", "store")
    counted = rows.transform_values(_Counted, "seen", store=number_store("counted"))
    _sum_all(counted).to_stream().to("out")
