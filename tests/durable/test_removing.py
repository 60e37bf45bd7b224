"""Deleting files step by step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.durable import remove_in_steps, remove_tree_in_steps
from millstream.durable.layer import OsFileLayer
from millstream.durable.removing import STEP_BYTES


class Watched(OsFileLayer):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def truncate(self, fd: int, length: int) -> None:
        self.sizes.append(length)
        super().truncate(fd, length)


def sparse(path: Path, size: int) -> Path:
    path.touch()
    os.truncate(path, size)
    return path


def test_a_large_file_is_made_shorter_before_it_goes(tmp_path: Path) -> None:
    files = Watched()
    remove_in_steps(sparse(tmp_path / "large", 2 * STEP_BYTES + 5), files=files)
    assert files.sizes == [STEP_BYTES + 5, 5]
    assert not (tmp_path / "large").exists()


def test_a_small_file_goes_at_once(tmp_path: Path) -> None:
    files = Watched()
    remove_in_steps(sparse(tmp_path / "small", STEP_BYTES), files=files)
    assert files.sizes == []
    assert not (tmp_path / "small").exists()


def test_what_has_another_name_stays_as_it_is(tmp_path: Path) -> None:
    path = sparse(tmp_path / "one", 2 * STEP_BYTES)
    (tmp_path / "other").hardlink_to(path)
    remove_in_steps(path)
    assert not path.exists()
    assert (tmp_path / "other").stat().st_size == 2 * STEP_BYTES


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        remove_in_steps(tmp_path / "nothing")


def test_a_folder_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    outside = sparse(tmp_path / "outside", 10)
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    sparse(folder / "below" / "large", 2 * STEP_BYTES)
    sparse(folder / "small", 1)
    (folder / "link").hardlink_to(outside)
    remove_tree_in_steps(folder)
    assert not folder.exists()
    assert outside.stat().st_size == 10
