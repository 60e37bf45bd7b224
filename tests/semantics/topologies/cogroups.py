"""cogroup: several grouped streams into one table."""

from __future__ import annotations

from tests.semantics.registry import dsl
from tests.semantics.shapes import NULL, NUMBERS, WORDS, numbers, text, word_store, words

from millstream import StreamsBuilder


def _word(key: str, value: str, agg: str) -> str:
    return f"{agg} {value}"


def _number(key: str, value: int, agg: str) -> str:
    return NULL if value < 0 else f"{agg} {value}"


@dsl
def cogroup_one(b: StreamsBuilder) -> None:
    grouped = words(b, "words").group_by_key(**WORDS)
    grouped.cogroup(_word).aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_two(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by_key(**WORDS).cogroup(_word)
    both = both.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    both.aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_two_unnamed_store(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by_key(**WORDS).cogroup(_word)
    both = both.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    both.aggregate(lambda: "", **WORDS).to_stream().to("out", **WORDS)


@dsl
def cogroup_two_named(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by_key(**WORDS).cogroup(_word)
    both = both.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    both.aggregate(lambda: "", name="together", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_two_uncached(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by_key(**WORDS).cogroup(_word)
    both = both.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    both.aggregate(lambda: "", store=word_store("all", caching=False)).to_stream().to("out")


@dsl
def cogroup_three(b: StreamsBuilder) -> None:
    def more(key: str, value: str, agg: str) -> str:
        return f"{agg} more {value}"

    three = words(b, "words").group_by_key(**WORDS).cogroup(_word)
    three = three.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    three = three.cogroup(words(b, "more").group_by_key(**WORDS), more)
    three.aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_of_one_stream_twice(b: StreamsBuilder) -> None:
    def again(key: str, value: str, agg: str) -> str:
        return f"{agg} again {value}"

    twice = words(b, "words").group_by_key(**WORDS).cogroup(_word)
    twice = twice.cogroup(words(b, "words").group_by_key(**WORDS), again)
    twice.aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_of_rekeyed_streams(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by(lambda k, v: v, **WORDS, name="by-word").cogroup(_word)
    by_number = numbers(b, "numbers").group_by(
        lambda k, v: f"{text(k)}{text(v)}", **NUMBERS, name="by-number"
    )
    both.cogroup(by_number, _number).aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_of_rekeyed_and_plain(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by(lambda k, v: v, **WORDS, name="by-word").cogroup(_word)
    both = both.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    both.aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_of_one_unnamed_rekeyed_stream(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by(lambda k, v: v, **WORDS).cogroup(_word)
    both = both.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    both.aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_of_two_unnamed_rekeyed_streams(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by(lambda k, v: v, **WORDS).cogroup(_word)
    by_number = numbers(b, "numbers").group_by(lambda k, v: f"{text(k)}{text(v)}", **NUMBERS)
    both.cogroup(by_number, _number).aggregate(lambda: "", store=word_store("all")).to_stream().to("out")


@dsl
def cogroup_then_table_operators(b: StreamsBuilder) -> None:
    both = words(b, "words").group_by_key(**WORDS).cogroup(_word)
    both = both.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    rows = both.aggregate(lambda: "", store=word_store("all"))
    rows.filter(lambda k, v: len(v) > 3).map_values(str.strip).to_stream().to("out", **WORDS)


@dsl
def cogroup_beside_a_count(b: StreamsBuilder) -> None:
    grouped = words(b, "words").group_by_key(**WORDS)
    both = grouped.cogroup(_word).cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _number)
    both.aggregate(lambda: "", store=word_store("all")).to_stream().to("out")
    grouped.count().to_stream().map_values(lambda v: f"count {v}").to("out", **WORDS)
