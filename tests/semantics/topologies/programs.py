"""Whole programs of many operators: mostly for the description of their topologies."""

from __future__ import annotations

from tests.semantics.registry import dsl
from tests.semantics.shapes import NUMBERS, WORDS, number_store, numbers, word_store, word_table, words

from millstream import StreamsBuilder


@dsl
def program_shop(b: StreamsBuilder) -> None:
    orders, refunds = numbers(b, "orders"), numbers(b, "refunds")
    customers = word_table(b, "customers", "customers-store")

    by_size = (
        orders.split(name="size-").branch(lambda k, v: v >= 100, name="large").default_branch(name="small")
    )
    by_size["size-large"].to("large")
    by_size["size-small"].map_values(lambda v: f"small {v}").to("log", **WORDS)

    def add(key: str, amount: int, balance: int) -> int:
        return balance + amount

    def subtract(key: str, amount: int, balance: int) -> int:
        return balance - amount

    both = orders.group_by_key(**NUMBERS).cogroup(add).cogroup(refunds.group_by_key(**NUMBERS), subtract)
    balances = both.aggregate(lambda: 0, name="balance", store=number_store("balances"))
    balances.to_stream().to("balance")

    cities = customers.filter(lambda k, v: v != "").map_values(str.upper)
    by_city = cities.group_by(lambda k, v: (v, k), **WORDS, name="by-city")
    by_city.count(store=number_store("cities-store")).to_stream().to("cities")

    sizes = orders.merge(refunds).map(lambda k, v: ("small" if v < 10 else "large", v))
    grouped = sizes.repartition(**NUMBERS, name="by-size").group_by_key(**NUMBERS)
    grouped.count().to_stream().to("sizes", **NUMBERS)


@dsl
def program_of_many_subtopologies(b: StreamsBuilder) -> None:
    a = words(b, "a")
    both = a.merge(words(b, "b"))
    both.group_by(lambda k, v: v, **WORDS).count().to_stream().to("out1", **NUMBERS)
    rows = words(b, "c").select_key(lambda k, v: k + k).to_table(store=word_store("rows"))
    rows.to_stream().to("out2")
    counts = rows.group_by(lambda k, v: (v, k), **WORDS).count().filter(lambda k, v: v > 0)
    renamed = counts.to_stream(lambda k, v: f"{k}-group").group_by_key(**NUMBERS)
    renamed.count(name="last").to_stream().to("out3", **NUMBERS)
    by_value = a.select_key(lambda k, v: v).group_by_key(**WORDS, name="a-by-value")
    by_value.reduce(lambda agg, v: v, store=word_store("latest"))
