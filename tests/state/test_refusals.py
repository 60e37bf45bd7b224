"""What an application does not put up with, and how it says so: the place, the likely cause, the remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import SmallApp

from millstream import Processor, Record, StoreBuilder, StreamsBuilder, Topology, serdes
from millstream.commit.plan_changes import PlanChangedError
from millstream.durable import UnsafeFolderError, UnsuitableStorageError
from millstream.durable.layer import OsFileLayer
from millstream.state.backends.folder import FORMAT_FILE
from millstream.state.errors import StoreFormatError, TaskLockedError
from millstream.state.specs import StoreKind

HOLD = """
import pathlib, sys
from millstream.state.local.directory import TaskDirectory
with TaskDirectory(pathlib.Path(sys.argv[1])).lock(timeout_ms=0):
    print("held", flush=True)
    sys.stdin.read()
"""

Folder = Callable[[SmallApp], Path]


@pytest.fixture
def app(tmp_path: Path) -> SmallApp:
    """An application with one commit, and input for another."""
    app = SmallApp(tmp_path / "app", "lmdb")
    app.create()
    app.append("to", "the", "river")
    assert app.run() == app.expected()
    app.append("to")
    return app


def log_root(app: SmallApp) -> Path:
    return app.log_root


def state_dir(app: SmallApp) -> Path:
    return app.state


def application(app: SmallApp) -> Path:
    return app.application_folder / "manifests"


def leases(app: SmallApp) -> Path:
    return app.application_folder / "leases"


def sealed(app: SmallApp) -> Path:
    return app.log_root / "sealed" / "app"


def state_of_the_application(app: SmallApp) -> Path:
    return app.task_folder.parent


def task(app: SmallApp) -> Path:
    return app.task_folder


FOLDERS = pytest.mark.parametrize(
    "folder", [log_root, state_dir, application, leases, sealed, state_of_the_application, task]
)


@FOLDERS
@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_folder_that_others_may_write_into_is_refused_and_named(
    app: SmallApp, folder: Folder, mode: int
) -> None:
    folder(app).chmod(mode)
    with pytest.raises(UnsafeFolderError) as caught:
        app.run()
    assert str(caught.value) == (
        f"{folder(app)} has mode {mode:04o}: other users may write into it, and what is in it would be read "
        "as ours. Likely cause: a shared or temporary folder. Remedy: name another folder, or, if nobody has "
        f"written into it, chmod 700 {folder(app)}."
    )
    folder(app).chmod(0o700)
    assert app.run() == app.expected()


@FOLDERS
def test_a_folder_of_somebody_else_is_refused_and_named(
    app: SmallApp, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        owner = as_if_owned_by_somebody_else(folder(app), patch)
        with pytest.raises(UnsafeFolderError) as caught:
            app.run()
    me = os.geteuid()
    assert str(caught.value) == (
        f"{folder(app)} belongs to user {owner}, but this process runs as user {me}. Likely cause: it was "
        "created by another account, or by root in a container. Remedy: run as its owner, name another "
        f"folder, or give it to this user (chown -R {me} {folder(app)})."
    )
    assert app.run() == app.expected()


def as_if_owned_by_somebody_else(folder: Path, patch: pytest.MonkeyPatch) -> int:
    """Let one folder, and no other, seem to belong to another user."""
    stat = Path.stat
    owner = os.geteuid() + 1

    def changed(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = stat(self, follow_symlinks=follow_symlinks)
        return os.stat_result((*found[:4], owner, *found[5:])) if self == folder else found

    patch.setattr(Path, "stat", changed)
    return owner


def test_another_user_is_refused_everything(app: SmallApp, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: me + 1)
        with pytest.raises(
            UnsafeFolderError, match=f"{app.state} belongs to user {me}, but .* user {me + 1}"
        ):
            app.run()
        with pytest.raises(UnsafeFolderError, match=f"{app.log_root} belongs to user {me}, but"):
            app.log().topics()
    assert app.run() == app.expected()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"format": 2}, "a store of backend 'lmdb', format 2"),
        ({"backend": "rocksdb"}, "a store of backend 'rocksdb', format 1"),
        ({"kind": "snapshot"}, "a snapshot of backend 'lmdb', format 1"),
    ],
)
def test_a_store_of_another_type_or_format_version_is_refused_and_left_alone(
    app: SmallApp, change: dict[str, object], found: str
) -> None:
    store = app.task_folder / "lmdb" / "counts"
    file = store / FORMAT_FILE
    content = file.read_text()
    file.write_text(json.dumps(json.loads(content) | change))
    before = (store / "data.mdb").read_bytes()
    with pytest.raises(StoreFormatError) as caught:
        app.run()
    assert str(caught.value) == (
        f"{store} holds {found}, but a store of backend 'lmdb', format 1 was asked for. Likely cause: the "
        "backend was changed in the configuration, the folder was copied, or another release of Millstream "
        "wrote it. Remedy: use that backend and release, or remove the folder; the store is then restored "
        "from its changelog."
    )
    assert before == (store / "data.mdb").read_bytes()
    file.write_text(content)
    assert app.run() == app.expected()


class WithoutExclusiveCreation(OsFileLayer):
    """Storage on which two processes can both create one file."""

    def open(self, path: Path, flags: int) -> int:
        return super().open(path, flags & ~os.O_EXCL)


class WithoutLinks(OsFileLayer):
    """Storage without hard links: a file cannot get its name all at once and exclusively."""

    def link(self, source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("storage", "lacks"),
    [
        (WithoutExclusiveCreation(), "create files exclusively"),
        (WithoutLinks(), "make hard links (Operation not permitted)"),
    ],
)
def test_storage_that_cannot_create_exclusively_is_refused(
    tmp_path: Path, storage: OsFileLayer, lacks: str
) -> None:
    app = SmallApp(tmp_path / "app", "lmdb", storage)
    with pytest.raises(UnsuitableStorageError) as caught:
        app.create()
    assert str(caught.value) == (
        f"The storage of {app.log_root} cannot {lacks}. Without that two processes could both believe that "
        "they own a name. Likely cause: an object store mounted as a folder, or a network share with links "
        "switched off. Remedy: put the folder on a local disk or on a file system with POSIX semantics "
        "(ext4, XFS, NFSv4)."
    )
    assert not (app.log_root / "millstream-log").exists()


@contextmanager
def another_process_on(folder: Path) -> Iterator[int]:
    """Another process holds a task's directory; its id."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_second_process_on_a_task_directory_is_told_who_is_there(app: SmallApp) -> None:
    with another_process_on(app.task_folder) as pid:
        executor = app.start()
        executor.worker = replace(executor.worker, lock_timeout_ms=1)
        with pytest.raises(TaskLockedError) as caught:
            executor.run_epoch()
        assert str(caught.value).startswith(
            f"The task directory {app.task_folder} is locked by process {pid} on "
        )
        assert str(caught.value).endswith(
            "and was not released within 1 ms. Likely cause: that process still works on the task, or is "
            "stopped. Remedy: wait for it or end it; a lock needs no clean-up, it is free when its owner is "
            "gone."
        )
    assert app.run() == app.expected()


def program(kind: StoreKind) -> Topology:
    """A program with a store of a kind."""
    builder = StreamsBuilder()
    builder.add_state_store(StoreBuilder("last", kind, key=serdes.string, value=serdes.string))
    builder.stream("words", key=serdes.string, value=serdes.string).process(Idle, "last")
    return builder.build()


class Idle(Processor[str, str, str, str]):
    """Has a store and does nothing with it."""

    def process(self, record: Record[str, str]) -> None:
        pass


def test_a_program_whose_store_was_of_another_kind_is_refused(app: SmallApp) -> None:
    def start(kind: StoreKind) -> InProcessExecutor:
        return InProcessExecutor(
            program(kind), application_id="other", log_root=app.log_root, state_dir=app.state
        )

    with start(StoreKind.KEY_VALUE) as executor:
        executor.run_until_caught_up()
    changed = "store 'last' was a key-value store and is a timestamped key-value store now"
    with pytest.raises(PlanChangedError, match=changed):
        start(StoreKind.TIMESTAMPED_KEY_VALUE)
    start(StoreKind.KEY_VALUE).close()
