"""``millstream state`` and ``millstream topics delete`` through click's runner."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.simulation.executor import InProcessExecutor

from millstream import StreamsBuilder, serdes
from millstream.cli.main import millstream
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.state.backends import supplier
from millstream.state.local.directory import open_state_directory
from millstream.types import Partition

Run = Callable[..., Result]


def counting(log: FileLog) -> InProcessExecutor:
    builder = StreamsBuilder()
    builder.stream("words", key=serdes.string, value=serdes.string).group_by_key().count(store="counts")
    return InProcessExecutor(
        builder.build(),
        application_id="count",
        log_root=log.root,
        state_dir=log.root.parent / "millstream-state",
        backend="lmdb",
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder with an application that has counted two words."""
    tmp_path.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    log = FileLog(tmp_path / "millstream-data")
    log.create_topic("words")
    log.append(TopicPartition("words", Partition(0)), record_batch([b"to", b"the"], [b"", b""], [1, 2]))
    with counting(log) as executor:
        executor.run_until_caught_up()

    def run(*words: str, stdin: str = "", status: int = 0) -> Result:
        result = CliRunner().invoke(millstream, words, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    return run


def test_local_state_is_listed(run: Run) -> None:
    header, row = run("state", "list").stdout.splitlines()
    assert header.split() == ["application", "task", "version", "bytes", "last", "used"]
    assert row.split()[:2] == ["count", "0_0"]
    assert row.endswith("s ago")
    assert run("state", "list", "another").stdout.splitlines() == [header]


def test_the_stores_of_a_task_are_shown(run: Run) -> None:
    _, _, row = run("state", "show", "count", "0_0").stdout.splitlines()
    store, backend, _version, offset, rows = row.split()
    assert (store, backend, offset, rows) == ("counts", "lmdb", "2", "2")


def test_the_rows_of_a_store_on_rocksdb_are_counted(run: Run) -> None:
    task = open_state_directory(Path("millstream-state")).task("count", "0_0")
    with supplier("rocksdb").open(task.store_path("rocksdb", "seen")) as store:
        store.write([(b"%d" % n, b"") for n in range(1000, 4000)], marker=b'{"version":1,"position":2}')
    assert run("state", "show", "count", "0_0").stdout.splitlines()[-1].split() == [
        "seen",
        "rocksdb",
        "1",
        "2",
        "3,000",
    ]


def test_a_task_that_is_not_there_is_named_with_those_that_are(run: Run) -> None:
    assert run("state", "show", "count", "0_7", status=1).stderr == (
        "Error: Task '0_7' of application 'count' has no state in millstream-state. Tasks: 0_0.\n"
    )


def test_state_is_cleaned_when_it_is_asked_for(run: Run) -> None:
    assert "Aborted" in run("state", "clean", "count", stdin="n\n", status=1).stderr
    assert run("state", "clean", "count", "--yes").stderr == "Deleted the state of 1 tasks: 0_0.\n"
    assert not Path("millstream-state/count/0_0").exists()
    assert run("state", "clean", "count", "--yes", status=1).stderr == (
        "Error: Application 'count' has no state in millstream-state. Applications: count.\n"
    )


def test_state_that_was_used_lately_or_is_in_use_is_left(run: Run) -> None:
    assert run("state", "clean", "count", "--yes", "--unused-for-ms", "3600000").stderr.splitlines() == [
        "Deleted the state of 0 tasks: none.",
        "Left 0_0: it was used lately.",
    ]
    with open_state_directory(Path("millstream-state")).task("count", "0_0").lock(timeout_ms=0):
        assert run("state", "clean", "count", "--yes").stderr.splitlines() == [
            "Deleted the state of 0 tasks: none.",
            "Left 0_0: it is in use.",
        ]
    assert Path("millstream-state/count/0_0/lmdb/counts").is_dir()


def test_state_of_an_application_that_runs_is_left_between_its_epochs(run: Run, tmp_path: Path) -> None:
    store = Path("millstream-state/count/0_0/lmdb/counts/data.mdb")
    with counting(FileLog(tmp_path / "millstream-data")):
        for options in ([], ["--unused-for-ms", "0"]):
            refused = run("state", "clean", "count", "--yes", *options, status=1).stderr
            assert f"in use: process {os.getpid()} on {socket.gethostname()} runs the" in refused
            assert "Nothing was deleted. Remedy: close it there" in refused
        assert store.exists()
    run("state", "clean", "count", "--yes")
    assert not store.exists()


def test_state_of_an_application_whose_log_is_gone_can_be_deleted(run: Run, tmp_path: Path) -> None:
    with counting(FileLog(tmp_path / "millstream-data")):
        shutil.rmtree(tmp_path / "millstream-data" / "applications")
        assert run("state", "clean", "count", "--yes").stderr == "Deleted the state of 1 tasks: 0_0.\n"
        (tmp_path / "millstream-data" / "applications" / "count" / "leases").mkdir(0o700, parents=True)


def test_a_folder_that_is_not_ours_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "count" / "0_0").mkdir(parents=True)
    for words in (["list"], ["clean", "count", "--yes"], ["show", "count", "0_0"]):
        refused = run("state", *words, "--state-dir", "elsewhere", status=1)
        assert "elsewhere is not a state directory of Millstream" in refused.stderr
    assert (tmp_path / "elsewhere" / "count" / "0_0").is_dir()


def test_a_topic_is_deleted_when_it_is_asked_for(run: Run) -> None:
    assert "Aborted" in run("topics", "delete", "words", stdin="n\n", status=1).stderr
    assert run("topics", "delete", "words", "--yes").stderr == "Deleted topic 'words' (2 records).\n"
    assert "words" not in run("topics", "list").stdout.splitlines()
    assert "There is no topic 'words'" in run("topics", "delete", "words", "--yes", status=1).stderr


def test_the_changelog_of_an_application_is_left_to_it(run: Run) -> None:
    told = run("topics", "tidy").stderr.splitlines()
    assert "count-counts-changelog: left to application 'count', whose changelog it is." in told


def test_the_changelog_of_an_application_is_not_deleted_by_mistake(run: Run) -> None:
    refused = run("topics", "delete", "count-counts-changelog", "--yes", status=1)
    assert "it holds the state of application 'count', which could not start without it" in refused.stderr
    assert run("topics", "list").stdout == "words\n"
    assert "count-counts-changelog" in run("topics", "list", "--internal").stdout
    run("topics", "delete", "count-counts-changelog", "--yes", "--force")
    assert "count-counts-changelog" not in run("topics", "list", "--internal").stdout
