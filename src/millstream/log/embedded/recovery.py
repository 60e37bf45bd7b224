"""Recovery: what the first process does with a partition after a crash.

A writer may have died anywhere, and after a power cut the watermark may be too low. Nothing above the
watermark was acknowledged *by this watermark*; but what is whole up there may have been acknowledged by one
that the power cut took. So: what is whole is adopted, what is torn is cut off, and what is below the
watermark must be intact. Each append is synced before the next one begins, so only the last can be torn: a
damaged entry with a later append behind it is damage. Recovery is idempotent; a crash in it changes nothing.

If the watermark itself is damaged, nobody can tell a torn tail from damage. Then everything must be whole to
its last byte, and the watermark is made anew; else the partition is refused.
"""

from __future__ import annotations

import os
from pathlib import Path

from millstream import failpoints
from millstream.durable import (
    DamagedFileError,
    FileLayer,
    disk_errors_named,
    is_temporary,
    opened,
    sync_folder,
)
from millstream.log.blocks import decode_block
from millstream.log.embedded.high_watermark import Watermark, read_watermark, write_watermark
from millstream.log.embedded.index import current_segments
from millstream.log.embedded.segment import (
    ReadBuffer,
    SegmentName,
    block_headers,
    entries_behind,
    read_header,
    scan,
    segment_name,
)
from millstream.log.errors import DamagedLogError


def is_unclean(place: str, mark: Watermark, *, first_look: bool) -> bool:
    """Tell whether a crash (or a writer at work just now) left something above the watermark.

    At the first look also whether it left a segment that it only began. ``place`` is the partition's folder
    and a slash: each append asks this, and names that are put together as text take a third of the time.
    """
    try:
        if os.stat(place + segment_name(mark.segment_base)).st_size != mark.length:  # noqa: PTH116
            return True
    except FileNotFoundError:
        return True
    is_empty = mark.next_offset == mark.segment_base
    if not is_empty and os.access(place + segment_name(mark.next_offset), os.F_OK):
        return True
    return first_look and any(is_temporary(path.name) for path in Path(place).iterdir())


def recover(folder: Path, files: FileLayer) -> Watermark:
    """Bring a partition into order and return its watermark. The caller holds the partition's lock.

    1. Remove temporary files.
    2. Walk over the entries above the watermark, as far as they are whole.
    3. Cut off a torn tail; sync what is whole.
    4. Write the watermark, this time with a sync: the next crash shall not find it damaged again.
    5. Sync the folder: a writer may have died before it did.
    """
    # 1
    for path in list(folder.iterdir()):
        if is_temporary(path.name):
            files.unlink(path)
    # 2
    mark = read_watermark(folder, files)
    names = current_segments(folder)
    bases = [name.base for name in names]
    found = _first_mark(folder, names, files) if mark is None else mark
    if found.segment_base not in bases:
        raise DamagedLogError(
            f"{folder / segment_name(found.segment_base)} is missing, but offsets up to {found.next_offset} "
            "were acknowledged. Likely cause: the file was deleted or not restored. Remedy: restore it from "
            "a backup."
        )
    for name in names[bases.index(found.segment_base) :]:
        if name.base != found.segment_base:
            found = _enter(folder, found, name, files)
        found, torn = _walk(folder / name.file_name, found, files)
        if torn is not None and (name != names[-1] or _is_written_over(folder, found, files)):
            raise torn
        if torn is not None and mark is None:
            raise DamagedLogError(_undecidable(folder, found, torn)) from torn
    # 3
    _trim(folder, found, files)
    # 4
    write_watermark(folder, found, files, durably=True)
    # 5
    sync_folder(folder, files=files)
    return found


def _undecidable(folder: Path, found: Watermark, torn: Exception) -> str:
    segment = folder / segment_name(found.segment_base)
    return (
        f"The watermark of {folder} is damaged, and {segment.name} is not whole after byte {found.length} "
        f"({torn}). Nobody can tell whether that is a write that was never acknowledged or damage. Likely "
        "cause: a fault of the disk. Remedy: restore the folder from a backup; or, if records from offset "
        f"{found.next_offset} on may be lost, cut the file (truncate -s {found.length} {segment}) and open "
        "again."
    )


def _first_mark(folder: Path, names: list[SegmentName], files: FileLayer) -> Watermark:
    """Return the watermark of a partition of which nothing is known: the start of its first segment."""
    if not names:
        raise DamagedLogError(
            f"{folder} has no segment and no watermark. Likely cause: its files were deleted. Remedy: "
            "restore the folder from a backup."
        )
    base = names[0].base
    return _enter(folder, Watermark(base, 0, base, base), names[0], files)


def _enter(folder: Path, mark: Watermark, name: SegmentName, files: FileLayer) -> Watermark:
    """Return the watermark at the start of the next segment."""
    path, base = folder / name.file_name, name.base
    if mark.next_offset != base:
        raise DamagedLogError(
            f"{folder / segment_name(mark.segment_base)} ends at offset {mark.next_offset}, but {path.name} "
            f"begins at {base}. Likely cause: a file was cut or deleted. Remedy: restore it from a backup."
        )
    return mark._replace(segment_base=base, length=read_header(path, files)[1])


def _walk(path: Path, mark: Watermark, files: FileLayer) -> tuple[Watermark, Exception | None]:
    """Move the mark over whole entries of its segment; also return what stopped it, if not the file's end."""
    with ReadBuffer(path, files) as window:
        size = window.size(at_least=mark.length)
        try:
            for located in scan(window, mark.length, size, mark.next_offset):
                if located.entry.file is None:
                    for position, header, _ in block_headers(window, located):
                        decode_block(header, window.get(position, header.length), window.at(position))
                mark = mark._replace(length=located.end, next_offset=located.entry.next_offset)
        except (DamagedFileError, DamagedLogError) as error:
            return mark, error
    return mark, None


def _is_written_over(folder: Path, mark: Watermark, files: FileLayer) -> bool:
    """Whether a later append stands behind the damaged entry at the mark.

    An append of records is one entry. A publication may be several, all with one append time.
    """
    path = folder / segment_name(mark.segment_base)
    append_times: set[int] = set()
    for entry in entries_behind(path, mark.length, files):
        if entry.base_offset > mark.next_offset and entry.stamp is None:
            return True
        if entry.base_offset >= mark.next_offset:
            append_times.add(entry.append_time)
    return len(append_times) > 1


def _trim(folder: Path, mark: Watermark, files: FileLayer) -> None:
    path = folder / segment_name(mark.segment_base)
    with disk_errors_named(path), opened(path, os.O_RDWR, files=files) as fd:
        if files.size(fd) > mark.length:
            files.truncate(fd, mark.length)
        files.fsync(fd)
    failpoints.hit("log.tail_cut")
