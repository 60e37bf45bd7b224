"""What the tables of the nine stages must say, cell by cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from examples.nine_stages import PARTITIONS, Stage

from millstream.log import FileLog, TopicPartition
from millstream.types import Partition

TASKS = {f"0_{number}" for number in range(PARTITIONS)}


def roles(stage: Stage) -> dict[str, Counter[str]]:
    """How many active and standby tasks each instance has."""
    found: dict[str, Counter[str]] = {}
    for one in stage.tasks:
        found.setdefault(one.host, Counter())[one.role] += 1
    return found


def check_stages(stages: Sequence[Stage], log: FileLog, app_id: str, hosts: Sequence[str]) -> None:
    """All cells that are the same in each run."""
    a, b, c, d = hosts
    half = Counter(active=PARTITIONS // 2, standby=PARTITIONS // 2)
    whole = Counter(active=PARTITIONS)
    assert [stage.number for stage in stages] == [*range(1, 10)]
    assert {one.task for one in stages[0].tasks if one.role == "active"} == TASKS
    for number in (2, 3, 4, 7):
        assert roles(stages[number - 1]) == {a: half, b: half}, f"stage {number}"
    assert roles(stages[4]) == {b: whole}
    assert roles(stages[5]) == {a: whole}
    new = {host: found for host, found in roles(stages[7]).items() if host in (c, d)}
    assert new, "somebody new has copies"
    assert all(found["active"] == 0 for found in new.values()), "and runs nothing yet"
    assert roles(stages[8]) == {host: Counter(active=1, standby=1) for host in hosts}
    for stage in stages:
        for task in TASKS:
            places = [one for one in stage.tasks if one.task == task]
            active = [one for one in places if one.role == "active"]
            assert len(active) == 1
            assert len({one.host for one in places}) == len(places), "no task twice on an instance"
            assert active[0].lag == active[0].lag_epochs == 0
            for copy in places:
                assert copy.position is not None
                assert copy.lag == (active[0].position or 0) - copy.position
                if stage.number not in (1, 3, 8):
                    assert (copy.version, copy.lag) == (active[0].version, 0), f"stage {stage.number}"
    ends = {
        f"0_{number}": log.latest(TopicPartition(f"{app_id}-counts-changelog", Partition(number)))
        for number in range(PARTITIONS)
    }
    assert {one.task: one.position for one in stages[8].tasks} == ends
    positions = [
        {one.task: one.position for one in stages[number - 1].tasks if one.role == "active"}
        for number in (2, 4, 5, 6, 9)
    ]
    for task in TASKS:  # a record of each partition before each of these stages
        first = positions[0][task] or 0
        assert [found[task] for found in positions] == [first + more for more in range(5)]
    versions = {one.task: one.version or 0 for one in stages[1].tasks}
    assert all((one.version or 0) > versions[one.task] for one in stages[3].tasks)
