"""Topologies as flow charts."""

from __future__ import annotations

from millstream import Processor, Topology, stores


def test_sub_topologies_topics_and_stores_are_drawn() -> None:
    topology = (
        Topology()
        .add_source("in", "orders")
        .add_processor("mill", Processor, "in")
        .add_sink("out", "copies", "mill")
        .add_state_store(stores.key_value("seen"), "mill")
    )
    assert topology.to_mermaid().splitlines() == [
        "flowchart TD",
        '  subgraph s0["Sub-topology 0"]',
        '    n0["in"]',
        '    n1["mill"]',
        '    n2["out"]',
        "  end",
        '  topic_orders(["orders"]) --> n0',
        "  n0 --> n1",
        "  n1 --> n2",
        '  n2 --> topic_copies(["copies"])',
        '  n1 --- store_seen[("seen")]',
    ]


def test_names_with_dashes_are_told_from_names_with_dots() -> None:
    topology = Topology().add_source("one", "a-b").add_source("two", "a.b")
    chart = topology.to_mermaid()
    assert 'topic_a_2d_b(["a-b"])' in chart
    assert 'topic_a_2e_b(["a.b"])' in chart
