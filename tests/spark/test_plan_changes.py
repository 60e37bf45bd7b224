"""A program that was changed goes on with the state that it has, or is told why it can't."""

from __future__ import annotations

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.spark.lab import Lab

from millstream import StreamsBuilder, Topology, serdes
from millstream.commit.plan_changes import PlanChangedError


def program(
    *, shout: bool = False, store: str | None = "counts", more: bool = False, rekey: bool = False
) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    if shout:
        stream = stream.map_values(str.upper)
    grouped = stream.group_by(lambda key, _: key) if rekey else stream.group_by_key()
    grouped.count(store=store).to_stream().to("out", key=serdes.string, value=serdes.int64)
    if more:
        stream.group_by_key().reduce(lambda _, value: value, store="latest")
    return builder.build()


def run(lab: Lab, topology: Topology) -> None:
    lab.append("in", [("a", "x")])
    with InProcessExecutor(
        topology, application_id="app", log_root=lab.folder / "log", state_dir=lab.state_dir, backend="lmdb"
    ) as executor:
        executor.run_until_caught_up()


def test_a_stateless_operator_and_a_store_may_be_added(bare_lab: Lab) -> None:
    bare_lab.topic("in", [[]])
    run(bare_lab, program())
    run(bare_lab, program(shout=True))
    run(bare_lab, program(shout=True, more=True))
    run(bare_lab, program(shout=True, more=True))
    assert bare_lab.by_key("out") == {"a": [1, 2, 3, 4]}


def test_a_store_may_not_vanish_and_nothing_is_touched(bare_lab: Lab) -> None:
    bare_lab.topic("in", [[]])
    run(bare_lab, program())
    before = bare_lab.everything()
    with pytest.raises(PlanChangedError) as refusal:
        run(bare_lab, program(store="sums"))
    assert "  store 'counts' of sub-topology 0 is gone (new: 'sums')\n" in str(refusal.value)
    assert "Remedy: give stores the names they had" in str(refusal.value)
    assert {**bare_lab.everything(), "in": before["in"]} == before
    run(bare_lab, program())


def test_a_store_may_not_move_behind_a_repartition(bare_lab: Lab) -> None:
    bare_lab.topic("in", [[]])
    run(bare_lab, program())
    with pytest.raises(PlanChangedError, match="store 'counts' was in sub-topology 0 and is in 1 now"):
        run(bare_lab, program(rekey=True))


def test_tasks_without_stores_are_known_by_what_they_read(bare_lab: Lab) -> None:
    bare_lab.topic("in", [[]])
    bare_lab.topic("other", [[]])
    copies = StreamsBuilder()
    copies.stream("in").to("out")
    run(bare_lab, copies.build())
    others = StreamsBuilder()
    others.stream("other").to("out")
    with pytest.raises(PlanChangedError, match="sub-topology 0 read in and reads other now"):
        run(bare_lab, others.build())


def texts() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    table = grouped.aggregate(
        lambda: "", lambda _, value, text: text + value, store="counts", value=serdes.string
    )
    table.to_stream().to("out", key=serdes.string, value=serdes.string)
    return builder.build()


def test_a_store_may_not_be_read_as_another_type(lab: Lab) -> None:
    lab.topic("in", [[("a", "x")]])
    lab.run(program())
    lab.append("in", [("a", "y")])
    before = lab.everything()
    with pytest.raises(PlanChangedError) as refusal:
        lab.run(texts())
    changed = "  store 'counts': its values were of serdes.int64 and are of serdes.string now\n"
    assert changed in str(refusal.value)
    assert lab.everything() == before
    lab.run(program())
    assert lab.by_key("out") == {"a": [1, 2]}
