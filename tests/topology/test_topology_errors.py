"""What a topology refuses at once, and that the user's lines are named."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import currentframe
from typing import Any

import pytest

from millstream import Processor, Topology, serdes, stores
from millstream.errors import TopologyError

SEEN = stores.key_value("seen", key=serdes.string, value=serdes.string)


def lines_below(count: int) -> str:
    """File and line so far below the caller's."""
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + count}"


def base() -> Topology:
    return (
        Topology()
        .add_source("in", "orders")
        .add_processor("mill", Processor, "in")
        .add_sink("out", "x", "mill")
    )


def refused(build: Callable[[Topology], Any]) -> str:
    with pytest.raises(TopologyError) as caught:
        build(base())
    return str(caught.value)


def test_two_nodes_of_one_name_name_both_lines() -> None:
    topology = Topology().add_source("in", "orders")
    first, second = lines_below(1), lines_below(3)
    topology.add_processor("mill", Processor, "in")
    with pytest.raises(TopologyError) as caught:
        topology.add_processor("mill", Processor, "in")
    assert str(caught.value) == (
        f"two operators have the name 'mill'.\n  at {first}\n  at {second}\n"
        "  Remedy: names are the identity of state: give each operator its own."
    )


def test_a_topic_that_two_sources_read_names_both_lines() -> None:
    first, second = lines_below(1), lines_below(3)
    topology = Topology().add_source("one", "orders")
    with pytest.raises(TopologyError) as caught:
        topology.add_source("two", "orders")
    assert str(caught.value) == (
        f"topic 'orders' is read by source 'one' and by source 'two'.\n  at {first}\n  at {second}\n"
        "  Remedy: read it once and use the stream (or table) twice."
    )


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda t: t.add_source("in2", re.compile("ord.*")), "topic 'orders' is read by source 'in' and"),
        (lambda t: t.add_source("in2"), "source 'in2' names 0 topics and patterns."),
        (lambda t: t.add_source("in2", "a", re.compile("b")), "source 'in2' names 2 topics and patterns."),
        (lambda t: t.add_source("in2", "a", "a"), "source 'in2' names a topic twice."),
        (lambda t: t.add_source("a name", "a"), "'a name' can't be a name."),
        (lambda t: t.add_processor("", Processor, "in"), "'' can't be a name."),
        (lambda t: t.add_processor("p", Processor), "node 'p' has no parent."),
        (lambda t: t.add_processor("p", Processor, "p"), "node 'p' is its own parent."),
        (lambda t: t.add_processor("p", Processor, "who"), "node 'p' has the unknown parent 'who'."),
        (lambda t: t.add_processor("p", Processor, "out"), "node 'p' has the sink 'out' as a parent."),
        (lambda t: t.add_sink("s", "x"), "node 's' has no parent."),
        (lambda t: t.add_sink("s", "x", "who"), "node 's' has the unknown parent 'who'."),
        (lambda t: t.add_state_store(SEEN, "who"), "store 'seen' can't be connected with 'who', which is"),
        (lambda t: t.add_state_store(SEEN, "out"), "store 'seen' can't be connected with 'out', which is"),
        (lambda t: t.add_state_store(SEEN, "in"), "store 'seen' can't be connected with 'in', which is no"),
        (lambda t: t.connect_processor_and_state_stores("mill"), "no state store is named to connect with"),
        (
            lambda t: t.connect_processor_and_state_stores("mill", "seen"),
            "processor 'mill' asks for the state store 'seen', which is unknown.",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_the_line_that_made_it_and_a_remedy(build: Any, what: str) -> None:
    message = refused(build)
    assert message.startswith(what)
    assert f"\n  at {__file__}:" in message
    assert "\n  Remedy: " in message


def test_an_unknown_parent_lists_those_that_are_there() -> None:
    message = refused(lambda topology: topology.add_processor("p", Processor, "who"))
    assert message.endswith("Remedy: add the parent first; there are: in, mill, out.")


def test_an_unknown_store_lists_those_that_are_there() -> None:
    message = refused(
        lambda topology: topology.add_state_store(SEEN).connect_processor_and_state_stores("mill", "sen")
    )
    assert message.endswith("Remedy: add it with add_state_store first; there are: seen.")


def test_a_second_store_of_the_same_name_is_refused() -> None:
    other = stores.key_value("seen", key=serdes.string, value=serdes.int64)
    first = lines_below(1)
    topology = base().add_state_store(SEEN)
    with pytest.raises(TopologyError) as caught:
        topology.add_state_store(other)
    assert "state store" in str(caught.value)
    assert f"at {first}" in str(caught.value)


def test_the_same_store_may_be_connected_to_two_processors() -> None:
    topology = base().add_processor("other", Processor, "in").add_state_store(SEEN, "mill")
    topology.connect_processor_and_state_stores("other", "seen")
    assert {node.name: list(node.spec.stores) for node in topology.graph.processors} == {
        "mill": ["seen"],
        "other": ["seen"],
    }


def test_a_global_store_can_t_be_connected() -> None:
    def build(topology: Topology) -> None:
        topology.add_global_store(SEEN, "rates-source", "rates", "update", Processor)
        topology.connect_processor_and_state_stores("mill", "seen")

    assert refused(build).startswith("store 'seen' is global and can't be connected with 'mill'.")


def test_a_global_store_needs_a_name_of_its_own() -> None:
    def build(topology: Topology) -> None:
        topology.add_state_store(SEEN)
        topology.add_global_store(SEEN, "rates-source", "rates", "update", Processor)

    assert refused(build).startswith("a state store with the name 'seen' is there already.")


def test_source_and_processor_of_a_global_store_need_two_names() -> None:
    message = refused(lambda topology: topology.add_global_store(SEEN, "both", "rates", "both", Processor))
    assert message.startswith("source and processor of a global store are both called 'both'.")


def test_an_instance_is_not_a_supplier() -> None:
    instance: Any = Processor()
    message = refused(lambda topology: topology.add_processor("p", instance, "in"))
    assert message.endswith(
        "is not a supplier: each task needs one of its own. Remedy: pass the class, or a function that makes "
        "a new instance, not an instance"
    )


def test_a_supplier_must_make_a_new_instance_each_time() -> None:
    instance: Any = Processor()
    with pytest.raises(TopologyError):
        base().add_processor("p", lambda: instance, "in")


def test_a_parent_that_is_named_twice_counts_once() -> None:
    topology = base().add_processor("p", Processor, "in", "in")
    assert topology.graph.nodes["p"].parents == ("in",)


def test_a_store_without_a_name_is_refused() -> None:
    with pytest.raises(TopologyError) as caught:
        stores.key_value("")
    assert str(caught.value).startswith("a state store needs a name")
