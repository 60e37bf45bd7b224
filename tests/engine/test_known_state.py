"""What the coordinator knows about state on hosts: what was deleted is forgotten, what hangs is avoided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from tests.engine.test_standby_jobs import entry, report, slot

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.standby import StandbyPosition
from millstream.engine.assignment.assigner import LiveSlot, SlotAssigner
from millstream.engine.assignment.model import AssignmentRules
from millstream.state.local.directory import Checkpoint
from millstream.types import Offset, Partition, Version

TASK = PlannedTask("0_0", 0, Partition(0), 0)


def held(records: int) -> dict[str, Checkpoint]:
    return {"0_0": Checkpoint(Version(1), {"counts": Offset(records)})}


def has_left_a() -> SlotAssigner:
    """Task 0_0 has run on host a, and then on host c. Host b has an older copy of it than a has."""
    assigner = SlotAssigner({0}, AssignmentRules(acceptable_lag=1_000))
    assigner.note_tasks([TASK], {"0_0": entry(1, 80)})
    live = {0: slot(0, "a", held(80))}
    assigner.update(live)
    assigner.note_committed(["0_0"], {"0_0": entry(2, 90)}, [report("0_0", "instance-a")])
    live |= {1: slot(1, "b", held(50)), 2: slot(2, "c", held(80))}
    assigner.update(live)
    assigner.drain("a")
    assigner.drain("b")
    assert assigner.update(live).tasks["0_0"].active.host == "c"
    assigner.note_committed(["0_0"], {"0_0": entry(3, 100)}, [report("0_0", "instance-c")])
    assigner.undrain("a")
    assigner.undrain("b")
    assert assigner.lags()["0_0"] == {"instance-a": 10, "instance-b": 50, "instance-c": 0}
    return assigner


def told_by_a_slot(assigner: SlotAssigner) -> None:
    assigner.note_deleted("instance-a", {"0_0"})


def told_by_a_report(assigner: SlotAssigner) -> None:
    """Of another task, which ran where it was deleted."""
    other = replace(report("0_1", "instance-a"), sealed=None, deleted=("0_0",))
    assigner.note_committed([], {}, [other])


@pytest.mark.parametrize("tell", [told_by_a_slot, told_by_a_report])
def test_a_lost_task_goes_to_a_real_copy_and_not_where_its_state_was_deleted(
    tell: Callable[[SlotAssigner], None],
) -> None:
    assigner = has_left_a()
    tell(assigner)
    after = assigner.update({0: slot(0, "a", held(80)), 1: slot(1, "b", held(50))})
    assert after.tasks["0_0"].active.host == "b"
    assert "50 records behind" in after.tasks["0_0"].active.why


def test_what_was_deleted_is_not_known_again_in_the_next_term_from_the_first_words_of_a_slot() -> None:
    assigner = has_left_a()
    live = {0: slot(0, "a", held(80)), 1: slot(1, "b", held(50)), 2: slot(2, "c", held(80))}
    assigner.note_deleted("instance-a", {"0_0"})
    assigner.begin_term()
    assigner.note_tasks([TASK], {"0_0": entry(3, 100)})
    assigner.update(live)
    assert assigner.lags()["0_0"] == {"instance-b": 50, "instance-c": 20}
    fresh = replace(live[0], incarnation="another", held=held(95))
    assigner.update({**live, 0: fresh})
    assert assigner.lags()["0_0"]["instance-a"] == 5, "whoever joins later knows what is there by then"


def test_a_copy_that_is_made_anew_counts_from_where_it_is() -> None:
    assigner = has_left_a()
    assigner.note_deleted("instance-a", {"0_0"})
    live = {0: slot(0, "a"), 1: slot(1, "b"), 2: slot(2, "c")}
    follows = replace(live[0], followed={"0_0": StandbyPosition(Version(0), {"counts": Offset(30)})})
    assigner.update({**live, 0: follows})
    assert assigner.lags()["0_0"]["instance-a"] == 70


def test_a_task_that_comes_back_to_where_it_ran_last_finds_nothing_if_that_was_deleted() -> None:
    """It had nothing to do since it left."""
    assigner = SlotAssigner({0})
    assigner.note_tasks([TASK], {"0_0": entry(1, 80)})
    live = {0: slot(0, "a", held(80)), 1: slot(1, "b", held(80))}
    home = assigner.update(live).tasks["0_0"].active
    assigner.note_committed(["0_0"], {"0_0": entry(2, 100)}, [report("0_0", home.instance)])
    assigner.note_deleted(home.instance, {"0_0"})
    assert assigner.version("0_0", home.instance) is None


def test_slots_that_are_all_made_anew_say_what_is_there_and_one_of_several_does_not() -> None:
    """Of an epoch that was given up nobody hears what its processes have deleted."""

    def update(assigner: SlotAssigner, names: Mapping[int, str]) -> dict[str, int]:
        slots = {number: replace(slot(number, "a"), incarnation=name) for number, name in names.items()}
        assigner.update({**slots, 9: slot(9, "b", held(50))})
        return assigner.lags()["0_0"]

    assigner = SlotAssigner({0})
    assigner.note_tasks([TASK], {"0_0": entry(2, 80)})
    first = {number: replace(slot(number, "a", held(80)), incarnation="old") for number in range(2)}
    assigner.update(first)
    assert update(assigner, {0: "old", 1: "new"}) == {"instance-a": 0, "instance-b": 30}
    assert update(assigner, {0: "newer", 1: "newest"}) == {"instance-b": 30}


def test_a_place_where_a_slot_hangs_is_avoided_until_that_place_has_a_slot_again() -> None:
    """A slot of the same number on another host says nothing about the process that hangs."""

    def placed(slots: Mapping[int, LiveSlot]) -> str:
        return assigner.update(slots).tasks["0_0"].active.host

    assigner = SlotAssigner({0})
    assigner.note_tasks([TASK], {"0_0": entry(1, 80)})
    other = slot(1, "a", held(80))
    assert placed({0: slot(0, "a", held(80))}) == "a"
    assigner.note_hanging([(0, "instance-a")])
    elsewhere = {0: slot(0, "b"), 1: other}
    assert placed(elsewhere) == "b", "the slot that hangs may hold its stores on host a"
    assert placed({**elsewhere, 2: slot(2, "c")}) == "b"
    assert assigner._avoided(elsewhere) == {"0_0": "instance-a"}
    assert assigner._avoided({0: slot(0, "a")}) == {}
