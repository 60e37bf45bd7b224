"""Sealed files, as tasks write them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from millstream.log.api import SealedRange, Stamp
from millstream.log.blocks import encode_blocks
from millstream.types import Epoch


def sealed_range(
    root: Path,
    records: pa.RecordBatch,
    *,
    epoch: int,
    task: str = "0_0",
    publisher: str = "app",
    attempt: int = 0,
    now: int = 0,
) -> SealedRange:
    """Write a sealed file with one block of records between other bytes; return where the block is."""
    chunks, headers = encode_blocks(records, now)
    block = b"".join(chunks)
    name = f"sealed/{publisher}/{task}-{epoch}-{attempt}"
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(b"before" * 20 + block + b"behind")
    (header,) = headers
    times = header.min_timestamp, header.max_timestamp
    return SealedRange(name, 120, len(block), header.rows, *times, Stamp(publisher, task, Epoch(epoch)))
