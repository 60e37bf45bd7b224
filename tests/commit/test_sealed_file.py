"""Sealed files: what one attempt of a task made, in one durable file that is never changed."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.simulation.faulty_files import FaultyFiles

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.sealed_file import SealedContent, SealedFile, SealedReader, read_sealed, write_sealed
from millstream.durable import OS_FILES, DamagedFileError, FileLayer
from millstream.log import record_batch
from millstream.types import Attempt, Epoch, Partition, Term


def folder_in(path: Path, files: FileLayer = OS_FILES) -> ApplicationStorage:
    folder = ApplicationStorage(path, "orders", files)
    folder.ensure()
    return folder


def file_of(
    folder: ApplicationStorage,
    epoch: int = 3,
    task: str = "0_1",
    level: int = 0,
    term: int = 1,
    attempt: int = 1,
) -> Path:
    return folder.sealed_file(Epoch(epoch), task, level, Term(term), Attempt(attempt))


def batch(*values: str, at: int = 5) -> pa.RecordBatch:
    return record_batch(
        [None] * len(values), [value.encode() for value in values], range(at, at + len(values))
    )


CONTENT = SealedContent(
    task_id="0_1",
    epoch=Epoch(3),
    published={
        ("words", Partition(0)): batch("to", "the"),
        ("words", Partition(1)): batch("river", at=9),
        ("orders-counts-changelog", Partition(1)): batch("1", "2", "3"),
    },
    local={"scratch": batch("x", "y")},
    append_time=77,
)


def seal(folder: ApplicationStorage, content: SealedContent = CONTENT) -> SealedFile:
    return write_sealed(folder, file_of(folder), content)


def values(batches: list[pa.RecordBatch]) -> list[bytes]:
    return [value for rows in batches for value in rows.column(1).to_pylist()]


def test_what_is_sealed_is_not_compressed(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    rows = batch(*["the same"] * 1_000)
    sealed = seal(folder, replace(CONTENT, published={("orders-counts-changelog", Partition(1)): rows}))
    assert sealed.sections[0].length > rows.column(1).nbytes, (
        "it is published as it is, and read without a copy"
    )


def test_what_was_sealed_is_read_again(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    sealed = seal(folder)

    reader = read_sealed(folder, sealed.path, sealed.digest)

    assert sealed.path == "sealed/orders/00000000000000000003/0_1.s0-t1-a1"
    assert reader.sections == sealed.sections
    assert [
        (section.topic, section.partition, section.count, section.min_timestamp, section.max_timestamp)
        for section in sealed.sections
    ] == [("words", 0, 2, 5, 6), ("words", 1, 1, 9, 9), ("orders-counts-changelog", 1, 3, 5, 7)]
    assert [values(list(reader.rows(section))) for section in sealed.sections] == [
        [b"to", b"the"],
        [b"river"],
        [b"1", b"2", b"3"],
    ]
    assert values(list(reader.local("scratch"))) == [b"x", b"y"]
    assert values(list(reader.local("other"))) == []


def test_sections_lie_one_after_the_other(tmp_path: Path) -> None:
    sections = seal(folder_in(tmp_path)).sections

    assert sections[0].start == 0
    assert [section.start for section in sections[1:]] == [s.start + s.length for s in sections[:-1]]


def test_a_task_that_made_nothing_seals_an_empty_file(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)

    sealed = seal(folder, replace(CONTENT, published={}, local={}))

    assert sealed.sections == ()
    assert read_sealed(folder, sealed.path, sealed.digest).sections == ()


def test_equal_content_has_equal_digests(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    first = seal(folder)
    again = write_sealed(folder, file_of(folder, attempt=2), CONTENT)
    other = write_sealed(folder, file_of(folder, attempt=3), replace(CONTENT, local={}))

    assert again.digest == first.digest
    assert other.digest != first.digest


def test_every_attempt_has_a_name_of_its_own(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    names = {
        file_of(folder),
        file_of(folder, epoch=4),
        file_of(folder, task="0_2"),
        file_of(folder, level=1),
        file_of(folder, term=2),
        file_of(folder, attempt=2),
        file_of(folder, task="0_11"),
        file_of(folder, term=11),
        file_of(folder, attempt=11),
    }

    assert len(names) == 9


def test_a_file_is_never_written_twice(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    sealed = seal(folder)
    before = (tmp_path / sealed.path).read_bytes()

    with pytest.raises(FileExistsError):
        seal(folder, replace(CONTENT, local={}))

    assert (tmp_path / sealed.path).read_bytes() == before


def test_others_may_not_read_it(tmp_path: Path) -> None:
    path = tmp_path / seal(folder_in(tmp_path)).path

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_it_is_durable_when_it_is_reported(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    folder = folder_in(tmp_path, files)
    folder.ensure_epochs(Epoch(3), 1)
    sealed = seal(folder)

    files.power_cut()

    read_sealed(folder, sealed.path, sealed.digest)


def test_the_folder_of_an_epoch_is_durable_whoever_made_it(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    folder = folder_in(tmp_path, files)
    files.mkdir(file_of(folder).parent)  # and died before the sync

    folder.ensure_epochs(Epoch(3), 1)
    sealed = seal(folder)
    files.power_cut()

    read_sealed(folder, sealed.path, sealed.digest)


def test_a_changed_file_is_not_the_one_that_was_committed(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    sealed = seal(folder)
    path = tmp_path / sealed.path
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(DamagedFileError) as caught:
            read_sealed(folder, sealed.path, sealed.digest)
        assert str(caught.value) == (
            f"{path} is not the file that was committed: its digest does not match. Likely cause: a fault of "
            "the disk, or another program wrote into the file. Remedy: restore it from a backup."
        )


def test_a_cut_file_says_so_without_a_digest(tmp_path: Path) -> None:
    path = tmp_path / seal(folder_in(tmp_path)).path
    content = path.read_bytes()
    for length in (0, 5, 15, 16, len(content) // 2, len(content) - 1):
        with pytest.raises(DamagedFileError) as caught:
            SealedReader(path, content[:length])
        assert str(path) in str(caught.value)
