"""Compression of blocks that are rewritten: zstd, of a body as a whole.

Level 1 is the fastest, and higher ones take little more off. Bytes that can't be compressed are left as they
are, so that they are read without a copy.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_CODEC: Final = "zstd"
_LEVEL: Final = 1
_WORTH_IT: Final = 0.97
"""What is left must be no more than this part."""


def compressed(body: pa.Buffer) -> pa.Buffer | None:
    """Return the compressed bytes; ``None`` if they are not worth it.

    >>> compressed(pa.py_buffer(bytes(1000))).size < 50
    True
    >>> compressed(pa.py_buffer(bytes(range(256)))) is None
    True
    """
    found = pa.Codec(_CODEC, _LEVEL).compress(body)
    return found if found.size <= _WORTH_IT * body.size else None


def decompressed(body: memoryview, raw_length: int) -> pa.Buffer:
    """Return the bytes that were compressed. So many are allocated: the caller has bounded the number.

    Raises an OSError for bytes that do not decompress, or to another length.
    """
    return pa.Codec(_CODEC).decompress(pa.py_buffer(body), raw_length)
