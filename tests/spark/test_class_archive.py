"""The archive of Spark's classes: written once, used by everybody, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.engine.spark.class_archive import archive_options


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A Java that came with an archive of its own classes."""
    for name in ("bin/java", "lib/server/classes.jsa"):
        path = tmp_path / "jdk" / name
        path.parent.mkdir(parents=True)
        path.touch()
    return tmp_path / "jdk" / "bin" / "java"


def archive_in(home: Path, java: Path) -> Path:
    """Where a short run writes it."""
    option = archive_options(home, java, "", is_short_run=True).split()[0].strip('"')
    return Path(option.removeprefix("-XX:ArchiveClassesAtExit="))


def test_a_short_run_writes_it_and_every_later_run_uses_it(home: Path, java: Path) -> None:
    assert archive_options(home, java, "", is_short_run=False) == ""
    archive = archive_in(home, java)
    assert archive.parent == home
    archive.write_bytes(b"\xa8\xab\x0b\xf0 and so on")
    for is_short_run in (True, False):
        options = archive_options(home, java, "", is_short_run=is_short_run)
        assert options.startswith(f'"-XX:SharedArchiveFile={archive}" ')


def test_one_that_is_being_written_is_left_alone_and_one_that_never_was_finished_is_written_anew(
    home: Path, java: Path
) -> None:
    archive = archive_in(home, java)
    archive.write_bytes(bytes(100))
    assert archive_options(home, java, "", is_short_run=True) == ""
    os.utime(archive, (0, 0))
    assert archive_in(home, java) == archive
    assert not archive.exists()


@pytest.mark.parametrize(
    "given", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=x"]
)
def test_options_of_the_user_decide(home: Path, java: Path, given: str) -> None:
    assert archive_options(home, java, given, is_short_run=True) == ""


def test_a_java_without_an_archive_of_its_own_writes_none(home: Path, java: Path) -> None:
    (java.parents[1] / "lib" / "server" / "classes.jsa").unlink()
    assert archive_options(home, java, "", is_short_run=True) == ""


def test_a_folder_that_others_may_write_into_is_not_trusted(home: Path, java: Path) -> None:
    archive_in(home, java).write_bytes(b"evil")
    home.chmod(0o777)
    assert archive_options(home, java, "", is_short_run=True) == ""
