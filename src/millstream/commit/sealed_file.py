"""Sealed files: everything that one attempt of a task made in an epoch, in one durable file.

::

    blocks of section 0 | blocks of section 1 | ... | directory | length of the directory (8) | magic (8)

A section is a row of log blocks for one topic partition: outputs, and the changelog rows of each
store. Publishing points the topic's index at a section, so nothing is copied. The directory is a framed
record that says where each section is. The file is created exclusively, with the attempt in its name,
and is durable before the task reports it; a file that no manifest names is garbage.

Tasks that run one after the other share a file (:mod:`millstream.commit.seal_group`): it is a row of such
parts, and what a task reports says where its own is. A part is the same bytes wherever it stands.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import WHOLE_FILE, Section
from millstream.durable import (
    Chunk,
    DamagedFileError,
    FrameKind,
    create_exclusive,
    ensure_private_folder,
    opened,
    read_bounded,
)
from millstream.log.blocks import Records, decode_blocks, encode_blocks, summary
from millstream.small_pickles import pickled_as_call
from millstream.types import Epoch, Partition

_DIRECTORY: Final = FrameKind(b"MSSD", version=1, max_bytes=64 << 20)
_TAIL: Final = struct.Struct("<Q8s")
_MAGIC: Final = b"MSSEALED"
_MAX_BYTES: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class SealedContent:
    """What goes into a sealed file."""

    task_id: str
    epoch: Epoch
    published: Mapping[tuple[str, Partition], Records]
    """Outputs and changelog rows by topic partition."""
    local: Mapping[str, Records]
    """Writes to stores without a changelog: applied here, published nowhere."""
    append_time: int


class _Directory(msgspec.Struct, frozen=True):
    task_id: str
    epoch: Epoch
    sections: tuple[Section, ...]
    local: tuple[tuple[str, Section], ...]


@pickled_as_call
@dataclass(frozen=True, slots=True)
class SealedFile:
    """A sealed file as its task reports it."""

    path: str
    digest: str
    """Of the task's part."""
    sections: tuple[Section, ...]
    """Where the rows are in the file."""
    part: tuple[int, int] = WHOLE_FILE
    """The first byte of the task's part, and its length."""


NO_FILE: Final = SealedFile("", "", ())
"""Of a task without stores that had nothing to write but rows for a repartition: a sync less to wait for."""


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """What a task made, as it stands in a file."""

    chunks: Sequence[Chunk]
    length: int
    digest: str
    _sections: tuple[Section, ...]

    def sections_at(self, start: int) -> tuple[Section, ...]:
        """Where its sections are if it begins at a byte of a file."""
        if not start:
            return self._sections
        return tuple(replace(section, start=start + section.start) for section in self._sections)


def encoded_part(content: SealedContent) -> EncodedPart:
    """The bytes of a task's part."""
    chunks: list[Chunk] = []
    position = 0
    sections: list[Section] = []
    local: list[tuple[str, Section]] = []
    parts = [
        *(((topic, partition), batch, None) for (topic, partition), batch in content.published.items()),
        *((("", Partition(0)), batch, store) for store, batch in content.local.items()),
    ]
    for (topic, partition), batch, store in parts:
        blocks, headers = encode_blocks(batch, content.append_time)
        count, lowest, highest = summary(headers)
        length = sum(header.length for header in headers)
        section = Section(topic, partition, position, length, count, lowest, highest)
        if store is None:
            sections.append(section)
        else:
            local.append((store, section))
        chunks += blocks
        position += length
    directory = _DIRECTORY.encode(_Directory(content.task_id, content.epoch, tuple(sections), tuple(local)))
    chunks += [directory, _TAIL.pack(len(directory), _MAGIC)]
    length = position + len(directory) + _TAIL.size
    return EncodedPart(chunks, length, _digest(chunks), tuple(sections))


def write_sealed(storage: ApplicationStorage, path: Path, content: SealedContent) -> SealedFile:
    """Write a file for one task, sync it, and say what was written."""
    part = encoded_part(content)
    ensure_private_folder(path.parent, files=storage.files)
    create_exclusive(path, part.chunks, files=storage.files)
    return SealedFile(storage.relative(path), part.digest, part.sections_at(0))


def read_sealed(
    storage: ApplicationStorage, relative: str, digest: str, part: tuple[int, int] = WHOLE_FILE
) -> SealedReader:
    """Open what a task has sealed and a manifest names, after checking that it is what was committed."""
    path = storage.root / relative
    if part == WHOLE_FILE:
        data = read_bounded(path, _MAX_BYTES, files=storage.files)
    else:
        start, length = part
        with opened(path, os.O_RDONLY, files=storage.files) as fd:
            data = storage.files.pread(fd, length, start)
    if _digest([data]) != digest:
        raise DamagedFileError(
            f"{path} is not the file that was committed: its digest does not match. Likely cause: a fault "
            "of the disk, or another program wrote into the file. Remedy: restore it from a backup."
        )
    return SealedReader(path, data)


class SealedReader:
    """What a task has sealed. Sections are where its part has them, wherever that stands in its file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        self._data = data
        if len(data) < _TAIL.size:
            raise DamagedFileError(f"{path} ends after {len(data)} bytes: it is no sealed file")
        length, magic = _TAIL.unpack_from(data, len(data) - _TAIL.size)
        start = len(data) - _TAIL.size - length
        if magic != _MAGIC or start < 0:
            raise DamagedFileError(f"{path} has no end: it is no sealed file, or was cut")
        frame = memoryview(data)[start : start + length]
        self._directory = _DIRECTORY.decode(frame, _Directory, f"the directory of {path}")

    @property
    def sections(self) -> tuple[Section, ...]:
        """What is published."""
        return self._directory.sections

    def local(self, store: str) -> Iterator[pa.RecordBatch]:
        """The writes to a store without a changelog."""
        for name, section in self._directory.local:
            if name == store:
                yield from self.rows(section)

    def rows(self, section: Section) -> Iterator[pa.RecordBatch]:
        """The rows of a section."""
        blocks = memoryview(self._data)[: section.start + section.length]
        return decode_blocks(blocks, str(self._path), section.start)


def _digest(chunks: Sequence[Chunk]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
