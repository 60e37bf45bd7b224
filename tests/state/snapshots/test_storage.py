"""Snapshots go to a folder or to any file system of pyarrow, and secrets stay where they are."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

import pytest
from pyarrow import fs
from tests.state.one_task import OneTask, rows_of

from millstream import StreamsConfig
from millstream.durable import UnsafeFolderError
from millstream.errors import ConfigError
from millstream.state.errors import SnapshotStorageError
from millstream.state.snapshots.storage import (
    ArrowStorage,
    FolderStorage,
    SnapshotStorage,
    absolute_location,
    open_storage,
)


def in_memory() -> ArrowStorage:
    """A file system that has no folder on any disk."""
    filesystem, _ = fs.FileSystem.from_uri("mock:///")
    return ArrowStorage("mock://bucket/prefix", (filesystem, "bucket/prefix"))


def in_a_folder_of_arrow(tmp_path: Path) -> ArrowStorage:
    return ArrowStorage(f"file://{tmp_path}/arrow")


@pytest.fixture(params=["folder", "memory", "arrow folder"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStorage:
    if request.param == "folder":
        return FolderStorage(tmp_path / "folder")
    return in_memory() if request.param == "memory" else in_a_folder_of_arrow(tmp_path)


def test_what_was_put_is_there_until_it_is_deleted(storage: SnapshotStorage) -> None:
    assert storage.sizes("app") == {}
    storage.put("app/a/one", [b"first ", b"content"])
    storage.put("app/a/two", [])
    storage.put("app/b", [b"old"])
    storage.put("app/b", [b"replaced"])
    storage.put("application/other", [b"x"])
    assert storage.sizes("app") == {"a/one": 13, "a/two": 0, "b": 8}
    assert b"".join(storage.read("app/a/one")) == b"first content"
    assert b"".join(storage.read("app/b")) == b"replaced"
    storage.delete("app/b")
    storage.delete("app/b")
    storage.delete("nobody/knows")
    assert storage.sizes("app") == {"a/one": 13, "a/two": 0}


def test_large_content_comes_in_chunks(storage: SnapshotStorage) -> None:
    content = os.urandom(3_000_000)
    storage.put("app/large", [content[:2_000_000], content[2_000_000:]])
    chunks = list(storage.read("app/large"))
    assert len(chunks) > 1
    assert b"".join(chunks) == content


def test_what_is_not_there_is_not_found(storage: SnapshotStorage) -> None:
    with pytest.raises(FileNotFoundError):
        list(storage.read("app/none"))


def test_an_error_of_the_storage_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    for storage in (
        FolderStorage(tmp_path),
        ArrowStorage(f"file://{tmp_path}"),
    ):
        with pytest.raises(SnapshotStorageError) as caught:
            list(storage.read("app"))
        assert str(caught.value).startswith(f"The storage of snapshots failed at {storage.shown('app')} (")
        assert str(caught.value).endswith("check snapshot_uri and its rights; state is safe without it.")


def test_a_folder_that_others_may_write_into_is_refused(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "shared")
    storage.put("app/x", [b"x"])
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(UnsafeFolderError, match="other users may write into it"):
        storage.sizes("app")


def test_a_store_comes_back_from_an_object_store(task: OneTask) -> None:
    task.snapshots = in_memory()
    task.add_store("counts")
    task.commit(counts={b"%05d" % number: secrets.token_bytes(100) for number in range(5_000)})
    task.take(retained=1)
    task.commit(counts={b"new": b"1"})
    (outcome,) = task.take(retained=1)
    assert outcome.problem is None
    task.log.delete_before(task.changelog("counts"), task.head().positions["counts"])
    task.lose()
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_path_and_a_file_uri_are_a_private_folder(tmp_path: Path, form: str) -> None:
    location = form.format(tmp_path / "with space")
    storage = open_storage(absolute_location(location))
    storage.put("app/x", [b"x"])
    assert (tmp_path / "with space" / "app" / "x").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "with space" / "app").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "with space" / "app" / "x").stat().st_mode) == 0o600


def test_a_relative_path_means_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_location("snapshots") == str(tmp_path / "snapshots")


def test_secrets_of_an_uri_are_not_told() -> None:
    uri = "s3://KEY:CANARY@bucket/path?region=eu-central-1&endpoint_override=127.0.0.1:1&scheme=http"
    assert "CANARY" not in repr(StreamsConfig(snapshot_uri=uri))
    storage = open_storage(uri)
    assert storage.shown("app") == "s3://bucket/path/app"
    with pytest.raises(SnapshotStorageError, match=r"failed at s3://bucket/path/app \(") as caught:
        open_storage(f"{uri}&no_such_option=1").sizes("app")
    assert "CANARY" not in str(caught.value)
    with pytest.raises(ConfigError) as refused:
        open_storage("nope://KEY:CANARY@bucket/path")
    assert "CANARY" not in str(refused.value)
    assert str(refused.value).startswith("snapshot_uri is 'nope://bucket/path', which pyarrow.fs can't open")
