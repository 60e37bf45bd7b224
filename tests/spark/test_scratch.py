"""What Spark leaves behind when it is killed: in one folder, which the next run removes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from tests.spark.lab import Lab
from tests.spark.processes import Child, until
from tests.spark.programs import check_exact, words

from millstream.engine.spark import scratch

pytestmark = pytest.mark.xdist_group("spark")

OTHER_PROCESS = """
import sys, tempfile
from millstream.engine.spark import scratch
tempfile.tempdir = sys.argv[1]
print(scratch.scratch_folder(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files with a short name, as the real one has."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


@pytest.fixture
def fresh(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process has no folder yet."""
    monkeypatch.setattr(scratch, "_own", {})
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return temporary


def in_another_process(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(temporary)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    return other, Path(other.stdout.readline().strip())


def test_a_process_has_one_folder(fresh: Path) -> None:
    folder = scratch.scratch_folder()
    assert folder == scratch.scratch_folder()
    assert folder.parent.parent == fresh
    assert folder.stat().st_mode & 0o077 == 0


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_live_one_is_not(fresh: Path) -> None:
    (dead, abandoned), (alive, kept) = in_another_process(fresh), in_another_process(fresh)
    (abandoned / "blockmgr-1").mkdir()
    (abandoned / "blockmgr-1" / "shuffle_0_0_0.data").touch()
    dead.kill()
    dead.communicate()
    own = scratch.scratch_folder()
    assert sorted(path for path in own.parent.iterdir() if path.is_dir()) == sorted([own, kept])
    alive.communicate()


def test_sockets_go_where_their_names_fit(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "spark.python.unix.domain.socket.dir"
    assert scratch.scratch_settings()[name] == str(scratch.scratch_folder())
    monkeypatch.setattr(scratch, "_LONGEST_SOCKET_FOLDER", len(str(fresh)))
    assert scratch.scratch_settings()[name] == str(fresh)
    monkeypatch.setattr(scratch, "_LONGEST_SOCKET_FOLDER", 3)
    assert scratch.scratch_settings()["spark.python.unix.domain.socket.enabled"] == "false"


def test_options_of_the_user_for_the_jvm_are_kept(spark: SparkContext) -> None:
    options = spark.getConf().get("spark.driver.extraJavaOptions") or ""
    assert "-Dmillstream.test=1" in options
    assert "-Dlog4j2.configurationFile=" in options


def test_killed_runs_leave_one_folder_and_the_next_run_removes_it(bare_lab: Lab, temporary: Path) -> None:
    bare_lab.topic("in", parts := words(200, seed=33))
    environment = {"TMPDIR": str(temporary)}
    with Child(bare_lab, "two_levels", environment=environment, max_records_per_epoch=20) as child:
        child.wait_for(lambda: bare_lab.committed() > 40, "some records are committed")
        child.kill()
    left = _folders(temporary)
    assert len(left) == 1
    assert list(left[0].glob("blockmgr-*")), "Spark was killed and has left something"
    assert _beside(temporary) == []
    with Child(bare_lab, "two_levels", environment=environment) as child:
        assert child.wait() == 0, child.said()
        until(lambda: not list(temporary.rglob("blockmgr-*")), "the JVM has cleaned up")
    assert left[0] not in _folders(temporary)
    assert _beside(temporary) == []
    check_exact(bare_lab, "two_levels", parts)


def _folders(temporary: Path) -> list[Path]:
    return [path for root in temporary.glob("millstream-spark-*") for path in root.iterdir() if path.is_dir()]


def _beside(temporary: Path) -> list[str]:
    """Whatever else there is, but the scripts that start Java, which are made once and stay."""
    ours = ("millstream-spark-", "millstream-java-")
    return [path.name for path in temporary.iterdir() if not path.name.startswith(ours)]
