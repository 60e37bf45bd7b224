"""What tasks that run one after the other seal: small parts in one file, each with a digest of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commit.test_sealed_file import CONTENT, batch, file_of, folder_in, values
from tests.simulation.faulty_files import FaultyFiles

from millstream.commit import seal_group
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.seal_group import SealGroup, is_shared
from millstream.commit.sealed_file import SealedContent, SealedFile, read_sealed, write_sealed
from millstream.durable import DamagedFileError, DiskFullError, SyncGroup
from millstream.types import Epoch, Partition

PUBLISHED = replace(CONTENT, local={})


def content_of(task: str, *rows: str) -> SealedContent:
    return replace(PUBLISHED, task_id=task, published={("words", Partition(0)): batch(*rows)})


def seal(group: SealGroup, folder: ApplicationStorage, content: SealedContent) -> SealedFile:
    return group.seal(file_of(folder, task=content.task_id), content, is_read_again=False)


def rows_of(folder: ApplicationStorage, sealed: SealedFile) -> list[list[bytes]]:
    """As a topic reads them: by their place in the file."""
    data = (folder.root / sealed.path).read_bytes()
    reader = read_sealed(folder, sealed.path, sealed.digest, sealed.part)
    start = sealed.part[0]
    found = [values(list(reader.rows(section))) for section in reader.sections]
    for section, own in zip(sealed.sections, reader.sections, strict=True):
        assert (section.start, section.length) == (start + own.start, own.length)
        assert data[section.start : section.start + 4] == b"MSBK"
    return found


def test_small_parts_stand_in_one_file_and_each_is_read_by_itself(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        parts = [seal(group, folder, content_of(f"0_{number}", f"row-{number}")) for number in range(3)]

    assert {part.path for part in parts} == {"sealed/orders/00000000000000000003/0_0.s0-t1-a1.shared"}
    assert [part.part[0] for part in parts] == [0, parts[0].part[1], sum(parts[at].part[1] for at in (0, 1))]
    assert [rows_of(folder, part) for part in parts] == [[[b"row-0"]], [[b"row-1"]], [[b"row-2"]]]
    assert is_shared(tmp_path / parts[0].path)


def test_a_part_has_the_digest_that_its_own_file_would_have(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        seal(group, folder, content_of("0_0", "before"))
        shared = seal(group, folder, replace(PUBLISHED, task_id="0_1"))
    alone = write_sealed(folder, file_of(folder, task="0_1"), replace(PUBLISHED, task_id="0_1"))

    assert shared.digest == alone.digest
    assert shared.part[0] > 0


def test_what_is_read_again_has_a_file_of_its_own(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        seal(group, folder, content_of("0_0", "before"))
        sealed = group.seal(file_of(folder), CONTENT, is_read_again=True)

    assert sealed.path == "sealed/orders/00000000000000000003/0_1.s0-t1-a1"
    assert not is_shared(tmp_path / sealed.path)
    assert values(list(read_sealed(folder, sealed.path, sealed.digest).local("scratch"))) == [b"x", b"y"]


def test_a_large_part_has_a_file_of_its_own(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        small = seal(group, folder, content_of("0_0", "before"))
        large = seal(group, folder, content_of("0_1", "x" * seal_group.LARGE_BYTES))

    assert is_shared(tmp_path / small.path)
    assert not is_shared(tmp_path / large.path)
    assert rows_of(folder, large) == [[b"x" * seal_group.LARGE_BYTES]]


def test_what_is_in_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal_group, "MAX_SHARED_BYTES", 2_000)
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        parts = [seal(group, folder, content_of(f"0_{number}", f"row-{number}")) for number in range(9)]
        assert group._length < 2_000

    assert len({part.path for part in parts}) > 1
    assert [rows_of(folder, part) for part in parts] == [[[b"row-%d" % number]] for number in range(9)]


def test_a_task_that_made_nothing_has_a_part_without_sections(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        sealed = seal(group, folder, replace(PUBLISHED, published={}))

    assert sealed.sections == ()
    assert read_sealed(folder, sealed.path, sealed.digest, sealed.part).sections == ()


def test_all_of_it_is_durable_when_the_block_has_ended(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    folder = folder_in(tmp_path, files)
    folder.ensure_epochs(Epoch(3), 1)
    with SealGroup(folder) as group:
        sealed = [seal(group, folder, content_of(f"0_{number}", "row")) for number in range(2)]

    files.power_cut()

    assert [rows_of(folder, part) for part in sealed] == [[[b"row"]], [[b"row"]]]


def test_an_error_writes_nothing(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    found: list[SealedFile] = []

    def fail() -> None:
        with SealGroup(folder) as group:
            found.append(seal(group, folder, content_of("0_0", "row")))
            raise RuntimeError("user code")

    with pytest.raises(RuntimeError, match="user code"):
        fail()
    assert not (tmp_path / found[0].path).exists()


def test_after_a_file_could_not_be_written_nothing_more_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks before the one that fails have been told that their parts are in the file."""
    folder = folder_in(tmp_path)
    write = SyncGroup.create

    def fail_once(group: SyncGroup, path: Path, chunks: Any) -> int:
        monkeypatch.setattr(SyncGroup, "create", write)
        raise DiskFullError("full")

    monkeypatch.setattr(SyncGroup, "create", fail_once)
    monkeypatch.setattr(seal_group, "MAX_SHARED_BYTES", 1_000)
    failed: list[str] = []

    def seal_all() -> None:
        with SealGroup(folder) as group:
            for number in range(4):
                try:
                    seal(group, folder, content_of(f"0_{number}", "row"))
                except DiskFullError:
                    failed.append(f"0_{number}")

    with pytest.raises(DiskFullError):
        seal_all()
    assert failed == ["0_1", "0_2", "0_3"]
    assert [path for path in tmp_path.glob("sealed/*/*/*") if path.is_file()] == []


def test_two_attempts_never_write_to_one_file(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        first = seal(group, folder, PUBLISHED)
    with pytest.raises(FileExistsError), SealGroup(folder) as group:
        seal(group, folder, PUBLISHED)
    with SealGroup(folder) as group:
        again = group.seal(file_of(folder, attempt=2), PUBLISHED, is_read_again=False)

    assert again.path != first.path
    assert again.digest == first.digest


def test_a_flipped_bit_is_found_in_the_part_that_has_it(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        parts = [seal(group, folder, content_of(f"0_{number}", "row")) for number in range(3)]
    path = tmp_path / parts[0].path
    data = bytearray(path.read_bytes())
    data[parts[1].part[0] + 70] ^= 1
    path.write_bytes(data)

    read_sealed(folder, parts[0].path, parts[0].digest, parts[0].part)
    read_sealed(folder, parts[2].path, parts[2].digest, parts[2].part)
    with pytest.raises(DamagedFileError, match="is not the file that was committed"):
        read_sealed(folder, parts[1].path, parts[1].digest, parts[1].part)


def test_rows_are_published_without_a_copy_from_the_middle_of_a_file(tmp_path: Path) -> None:
    rows: list[pa.RecordBatch] = [batch("to"), batch("the", at=9)]
    folder = folder_in(tmp_path)
    with SealGroup(folder) as group:
        seal(group, folder, content_of("0_0", "before"))
        published = {("words", Partition(number)): part for number, part in enumerate(rows)}
        sealed = seal(group, folder, replace(PUBLISHED, published=published))

    assert rows_of(folder, sealed) == [[b"to"], [b"the"]]
