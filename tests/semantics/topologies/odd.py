"""Topologies that look wrong. Kafka refuses most of them, and accepts a few."""

from __future__ import annotations

import re

from tests.semantics.registry import dsl, papi
from tests.semantics.shapes import (
    NUMBERS,
    WORDS,
    each,
    number_store,
    word_store,
    word_table,
    words,
)

from millstream import (
    Processor,
    ProcessorContext,
    Record,
    StoreBuilder,
    StreamsBuilder,
    Topology,
    serdes,
    stores,
)


class _Pass(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def _store() -> StoreBuilder:
    return stores.key_value("store", key=serdes.string, value=serdes.int64)


@papi
def odd_two_sources_of_one_topic(t: Topology) -> None:
    t.add_source("one", "in", **WORDS)
    t.add_source("two", "in", **WORDS)


@papi
def odd_one_source_with_a_topic_twice(t: Topology) -> None:
    t.add_source("one", "in", "in", **WORDS)
    t.add_sink("sink", "out", "one", **WORDS)


@papi
def odd_two_nodes_of_one_name(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("source", _Pass, "source")


@papi
def odd_unknown_parent(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("mark", _Pass, "nobody")


@papi
def odd_processor_as_its_own_parent(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("mark", _Pass, "mark")


@papi
def odd_processor_without_parent(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_sink("sink", "out", "source", **WORDS)
    t.add_processor("alone", _Pass)


@papi
def odd_sink_without_parent(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_sink("sink", "out", **WORDS)


@papi
def odd_sink_as_parent(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_sink("sink", "out", "source", **WORDS)
    t.add_processor("after", _Pass, "sink")


@papi
def odd_source_without_topics(t: Topology) -> None:
    t.add_source("source", **WORDS)
    t.add_sink("sink", "out", "source", **WORDS)


@papi
def odd_topic_beside_matching_pattern(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_source("all", re.compile("i.*"), **WORDS)


@papi
def odd_pattern_beside_matching_topic(t: Topology) -> None:
    t.add_source("all", re.compile("i.*"), **WORDS)
    t.add_source("source", "in", **WORDS)


@papi
def odd_two_stores_of_one_name(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("mark", _Pass, "source")
    t.add_state_store(_store(), "mark")
    t.add_state_store(_store(), "mark")


@papi
def odd_store_for_unknown_processor(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_state_store(_store(), "nobody")


@papi
def odd_store_connected_to_source(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_state_store(_store(), "source")


@papi
def odd_store_connected_to_sink(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_sink("sink", "out", "source", **WORDS)
    t.add_state_store(_store(), "sink")


@papi
def odd_unknown_store_connected(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("mark", _Pass, "source")
    t.connect_processor_and_state_stores("mark", "nothing")


@papi
def odd_supplier_that_returns_one_instance(t: Topology) -> None:
    only = _Pass()
    t.add_source("source", "in", **WORDS)
    t.add_processor("mark", lambda: only, "source")


@papi
def odd_global_store_of_a_source_topic(t: Topology) -> None:
    def ignore(context: ProcessorContext[None, None], record: Record[str, str]) -> None:
        pass

    t.add_source("source", "in", **WORDS)
    t.add_global_store(_store(), "global", "in", "keeper", each(ignore), **WORDS)


@dsl
def odd_topic_as_stream_and_table_without_store(b: StreamsBuilder) -> None:
    words(b, "in").to("out")
    word_table(b, "in").to_stream().to("out")


@dsl
def odd_topic_as_two_tables_without_store(b: StreamsBuilder) -> None:
    word_table(b, "in").to_stream().to("out")
    word_table(b, "in").to_stream().to("out")


@dsl
def odd_topic_as_stream_and_global_table(b: StreamsBuilder) -> None:
    words(b, "in").to("out")
    b.global_table("in", store=word_store("everywhere"))


@dsl
def odd_topic_as_table_and_global_table(b: StreamsBuilder) -> None:
    word_table(b, "in").to_stream().to("out")
    b.global_table("in", store=word_store("everywhere"))


@dsl
def odd_topic_as_two_global_tables(b: StreamsBuilder) -> None:
    b.global_table("in", store=word_store("one"))
    b.global_table("in", store=word_store("two"))


@dsl
def odd_topic_beside_matching_pattern_in_dsl(b: StreamsBuilder) -> None:
    words(b, "in").to("out")
    b.stream(re.compile("i.*"), **WORDS).to("out")


@dsl
def odd_list_with_a_topic_twice(b: StreamsBuilder) -> None:
    b.stream(["in", "in"], **WORDS).to("out")


@dsl
def odd_empty_list_of_topics(b: StreamsBuilder) -> None:
    b.stream([], **WORDS).to("out")


@dsl
def odd_unknown_store_of_process(b: StreamsBuilder) -> None:
    words(b, "in").process(_Pass, "nothing").to("out")


@dsl
def odd_two_operators_of_one_name(b: StreamsBuilder) -> None:
    words(b, "in").filter(lambda k, v: True, name="same").map_values(lambda v: v, name="same").to("out")


@dsl
def odd_two_counts_into_one_store(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.group_by_key(**WORDS).count(store=number_store("counts"))
    stream.group_by_key(**WORDS).count(store=number_store("counts"))


@dsl
def odd_store_added_twice(b: StreamsBuilder) -> None:
    b.add_state_store(_store())
    b.add_state_store(_store())
    words(b, "in").process(_Pass, "store").to("out", **WORDS)


@dsl
def odd_same_store_builder_added_twice(b: StreamsBuilder) -> None:
    store = _store()
    b.add_state_store(store)
    b.add_state_store(store)
    words(b, "in").process(_Pass, "store").to("out", **WORDS)


@dsl
def odd_added_store_named_like_a_table(b: StreamsBuilder) -> None:
    b.add_state_store(_store())
    word_table(b, "in", "store")


@dsl
def odd_added_store_of_nobody(b: StreamsBuilder) -> None:
    b.add_state_store(_store())
    words(b, "in").to("out")


@dsl
def odd_two_repartitions_of_one_name(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.repartition(**WORDS, name="same").to("out")
    stream.map_values(lambda v: v).repartition(**WORDS, name="same").to("out")


@dsl
def odd_two_groups_of_one_name(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.group_by(lambda k, v: v, **WORDS, name="same").count().to_stream().to("out", **NUMBERS)
    stream.group_by(lambda k, v: k, **WORDS, name="same").count().to_stream().to("out", **NUMBERS)


@dsl
def odd_two_groups_of_one_name_below_one_rekeyed_stream(b: StreamsBuilder) -> None:
    rekeyed = words(b, "in").select_key(lambda k, v: v)
    rekeyed.group_by_key(**WORDS, name="same").count().to_stream().to("out", **NUMBERS)
    rekeyed.group_by_key(**WORDS, name="same").count().to_stream().to("out", **NUMBERS)


@dsl
def odd_two_branches_of_one_name(b: StreamsBuilder) -> None:
    split = words(b, "in").split(name="part-")
    split.branch(lambda k, v: True, name="same").branch(lambda k, v: True, name="same").no_default_branch()


@dsl
def odd_store_name_with_a_space(b: StreamsBuilder) -> None:
    words(b, "in").group_by_key(**WORDS).count(store=number_store("two words"))


@dsl
def odd_operator_name_with_a_space(b: StreamsBuilder) -> None:
    words(b, "in").filter(lambda k, v: True, name="two words").to("out")


@dsl
def odd_empty_operator_name(b: StreamsBuilder) -> None:
    words(b, "in").filter(lambda k, v: True, name="").to("out")


@dsl
def odd_source_name_with_a_space(b: StreamsBuilder) -> None:
    b.stream("in", **WORDS, name="two words").to("out")


@dsl
def odd_global_store_passed_to_process(b: StreamsBuilder) -> None:
    b.global_table("global", store=word_store("everywhere"))
    words(b, "in").process(_Pass, "everywhere").to("out")


@dsl
def odd_two_sources_of_one_name(b: StreamsBuilder) -> None:
    b.stream("in", **WORDS, name="same").to("out")
    b.stream("other", **WORDS, name="same").to("out")
