"""``millstream apps``: what the applications of a log are, and beginning anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.project import MODULE, append, counted, counts, project, rows_of, run_command, run_local

from millstream.clock import now_ms
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.lease import Lease, acquire
from millstream.engine.assignment.view import AssignedTask, AssignmentFile
from millstream.log import FileLog

__all__ = ["counted", "project"]


def held_lease(folder: Path) -> Lease:
    return acquire(ApplicationStorage(folder / "millstream-data", MODULE), clock=now_ms, ttl_ms=30_000)


def test_applications_are_listed_with_their_lag(counted: Path) -> None:
    append(["a", "b", "c"], start=6)
    (row,) = rows_of(run_command("apps", "list", "--json"))
    assert (row["application"], row["state"], row["lag"]) == (MODULE, "stopped", 3)
    shown = run_command("apps", "list").stdout.splitlines()
    assert shown[0].split() == ["application", "state", "epoch", "committed", "lag"]
    assert shown[1].split()[:2] == [MODULE, "stopped"]
    assert shown[1].split()[-1] == "3"


def test_an_application_that_runs_is_shown_as_running_and_is_neither_reset_nor_deleted(counted: Path) -> None:
    lease = held_lease(counted)
    (row,) = rows_of(run_command("apps", "list", "--json"))
    assert row["state"] == "running"
    assert f"process {os.getpid()} on" in run_command("apps", "describe", MODULE).stdout
    for words in (("reset", MODULE, "--yes"), ("delete", MODULE, "--yes")):
        refused = run_command("apps", *words, status=1).stderr
        assert f"Application '{MODULE}' is run by process {os.getpid()}" in refused
        assert "Nothing was changed. Remedy: stop it first" in refused
    lease.release()
    run_command("apps", "delete", MODULE, "--yes")


def test_an_application_is_described(counted: Path) -> None:
    (row,) = rows_of(run_command("apps", "describe", MODULE, "--json"))
    assert (row["reads"], row["writes"]) == (["words"], ["word-counts"])
    assert row["stores"] == [
        {"store": "counts", "kind": "timestamped key-value", "changelog": "own"},
        {"store": "per-window", "kind": "timestamped window", "changelog": "own"},
    ]
    assert [task["task"] for task in row["tasks"]] == ["0_0", "0_1", "1_0", "1_1", "2_0", "2_1"]
    assert "per-window" in run_command("apps", "describe", MODULE).stdout


def test_the_lag_is_shown_per_partition(counted: Path) -> None:
    append(["a", "b", "c"], start=6)
    assert run_command("apps", "lag", MODULE).stdout.splitlines() == [
        "topic  partition  committed  end  lag",
        "words          0          3    5    2",
        "words          1          3    4    1",
    ]


def test_the_places_of_tasks_are_shown_with_how_far_they_are_and_why(counted: Path) -> None:
    tasks = [
        AssignedTask(task="2_0", role="active", host="a", instance="i", slot=0, version=3, position=9, lag=0),
        AssignedTask(task="2_0", role="standby", host="b", instance="j", slot=1, lag=9, why="few are there"),
    ]
    AssignmentFile(ApplicationStorage(counted / "millstream-data", MODULE).path).write(lambda: tasks)
    shown = run_command("apps", "assignment", MODULE).stdout.splitlines()
    assert shown[0].split() == ["task", "role", "host", "slot", "version", "position", "lag", "why"]
    assert shown[1].split()[:7] == ["2_0", "active", "a", "0", "3", "9", "0"]
    found = rows_of(run_command("apps", "assignment", MODULE, "--json"))
    assert [(row["role"], row["version"], row["lag"], row["why"]) for row in found] == [
        ("active", 3, 0, ""),
        ("standby", None, 9, "few are there"),
    ]


def test_it_is_told_why_no_places_are_shown(counted: Path) -> None:
    shown = run_command("apps", "assignment", MODULE)
    assert (shown.stdout, "it has not run on Spark" in shown.stderr) == ("", True)


def test_an_unknown_application_is_told_with_those_that_there_are(counted: Path) -> None:
    for words in (["describe"], ["lag"], ["reset"], ["delete"]):
        told = run_command("apps", *words, "nobody", status=1).stderr
        assert f"There is no application 'nobody' in millstream-data. Applications: {MODULE}." in told


def test_a_dry_run_shows_what_would_be_done_and_changes_nothing(counted: Path) -> None:
    before = rows_of(run_command("apps", "describe", MODULE, "--json"))
    shown = run_command("apps", "reset", MODULE, "--to-offset", "1", "--dry-run")
    assert shown.stdout.splitlines() == [
        "topic  partition  committed  from",
        "words          0          3     1",
        "words          1          3     1",
    ]
    assert f"{MODULE}-counts-changelog: will be deleted." in shown.stderr
    assert "Nothing was changed (--dry-run)." in shown.stderr
    assert rows_of(run_command("apps", "describe", MODULE, "--json")) == before


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (["--to-earliest"], {"to": 1, "the": 2, "river": 3}),
        ([], {"to": 1, "the": 2, "river": 3}),  # the program says: from the earliest
        (["--to-latest"], {}),
        (["--to-offset", "2"], {"river": 2}),  # of each partition
        (["--to-offset", "99"], {}),  # bounded by what is there
        (["--to-time", "30"], {"the": 1, "river": 2}),
        (["--shift-by", "-1"], {"river": 2}),
        (["--topic", "words", "--to-offset", "2"], {"river": 2}),
    ],
)
def test_a_reset_application_counts_anew_from_where_it_was_told(
    counted: Path, option: list[str], expected: dict[str, int]
) -> None:
    before = counts()
    told = run_command("apps", "reset", MODULE, *option, "--yes").stderr
    assert f"Application '{MODULE}' is reset" in told
    run_local()
    assert dict(counts()[len(before) :]) == expected
    if expected:
        rows = rows_of(run_command("state", "export", MODULE, "counts", "-"))
        assert {row["key"]: row["value"] for row in rows} == expected


def test_a_reset_is_confirmed_and_can_t_go_two_ways(counted: Path) -> None:
    assert "Aborted" in run_command("apps", "reset", MODULE, stdin="n\n", status=1).stderr
    refused = run_command("apps", "reset", MODULE, "--to-earliest", "--to-offset", "3", status=2).stderr
    assert "--to-earliest and --to-offset contradict each other" in refused
    unknown = run_command("apps", "reset", MODULE, "--topic", "nope", status=1).stderr
    assert f"Application '{MODULE}' does not read topic 'nope'. It reads: words." in unknown


def test_a_reset_that_was_killed_in_the_middle_is_completed_by_another_one(
    counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(log: FileLog, topic: str) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(FileLog, "delete_topic", killed)
        with pytest.raises(OSError, match="killed"):
            run_command("apps", "reset", MODULE, "--to-earliest", "--yes")
    run_command("apps", "reset", MODULE, "--to-earliest", "--yes")
    run_local()
    assert dict(counts()[-3:]) == {"to": 1, "the": 2, "river": 3}


def test_a_deleted_application_leaves_its_output_topics_and_nothing_else(counted: Path) -> None:
    before = counts()
    told = run_command("apps", "delete", MODULE, "--yes").stderr
    assert told == f"Deleted application '{MODULE}'. Topics that stay: word-counts.\n"
    assert counts() == before
    assert run_command("topics", "list", "--internal").stdout == "word-counts\nwords\n"
    data = counted / "millstream-data"
    assert [path.name for path in (data / "applications").iterdir()] == []
    assert [path.name for path in (data / "sealed").iterdir()] == []
    assert [path.name for path in (counted / "millstream-state").iterdir() if path.is_dir()] == []
    refused = run_local(status=1).stderr
    assert "start the application under another app_id" in refused
    run_local("--app-id", "another")
    assert len(counts()) == 2 * len(before)
