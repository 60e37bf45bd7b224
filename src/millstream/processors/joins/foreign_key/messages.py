r"""What the steps of a foreign-key join send each other, in bytes: subscriptions, and the answers to them.

The key of a subscription is the foreign key, that of an answer the primary key. Values::

    subscription: instruction (1) | partition (4) | length of the hash (1) | hash | primary key
    kept:                           partition (4) | length of the hash (1) | hash
    answer:                         partition (4) | length of the hash (1) | hash | 1 | right value  (or 0)

The hash is that of the left value's bytes, empty where the left row is deleted. The partition is that of the
left row's task: answers go there, however the left table's topic is partitioned. A subscription is kept under
the length of the foreign key (4), the foreign key and the primary key, so that those of a right row lie
together, in the order of their primary keys.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from millstream.processors.batch import Batch
from millstream.state.backends.api import KeyRange
from millstream.state.backends.key_ranges import after_prefix

__all__ = [
    "Instruction",
    "ToSubscribers",
    "answer",
    "hash_of",
    "kept_key",
    "kept_of",
    "kept_range",
    "split_answer",
    "split_subscription",
    "subscription",
]

_PARTITION: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">I")
_HASH_BYTES: Final = 16


class Instruction(IntEnum):
    """What is to be done with a subscription, and when it is answered at once. The numbers are Kafka's."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3

    @property
    def deletes(self) -> bool:
        """Whether the subscription ends."""
        return self <= Instruction.DELETE_KEY_AND_PROPAGATE


_INSTRUCTIONS: Final = tuple(sorted(Instruction))


def hash_of(value: bytes | None) -> bytes:
    """The hash of a left value's bytes; nothing of nothing.

    >>> hash_of(b"blue").hex(), hash_of(None)
    ('6c7503bf86f4eb35827d02b504444ac7', b'')
    """
    return b"" if value is None else blake2b(value, digest_size=_HASH_BYTES).digest()


def kept_of(partition: int, value_hash: bytes) -> bytes:
    """What the right side remembers of a subscription, besides its key."""
    return b"".join((_PARTITION.pack(partition), bytes((len(value_hash),)), value_hash))


def subscription(instruction: Instruction, kept: bytes, primary_key: bytes) -> bytes:
    """A subscription of a left row, in bytes."""
    return b"".join((bytes((instruction,)), kept, primary_key))


def split_subscription(data: bytes) -> tuple[Instruction, bytes, bytes]:
    """Undo `subscription`.

    >>> sent = subscription(Instruction.DELETE_KEY_NO_PROPAGATE, kept_of(2, hash_of(b"blue")), b"order-7")
    >>> instruction, kept, primary_key = split_subscription(sent)
    >>> instruction.name, kept == kept_of(2, hash_of(b"blue")), primary_key
    ('DELETE_KEY_NO_PROPAGATE', True, b'order-7')
    """
    end = 6 + data[5]
    return _INSTRUCTIONS[data[0]], data[1:end], data[end:]


def answer(kept: bytes, right: bytes | None) -> bytes:
    """What a left row is told of its right row, in bytes, for a subscription as it is kept."""
    return kept + b"\0" if right is None else b"".join((kept, b"\1", right))


def split_answer(data: bytes) -> tuple[bytes, bytes | None]:
    """The hash of the left value that asked, and the right value, None if there is none.

    >>> split_answer(answer(kept_of(2, b"h"), b"ann")), split_answer(answer(kept_of(2, b"h"), None))
    ((b'h', b'ann'), (b'h', None))
    """
    end = 5 + data[4]
    return data[5:end], data[end + 1 :] if data[end] else None


class ToSubscribers:
    """Sends each answer to the partition of its left row: see `task.outputs.BatchPartitioner`."""

    def partitions_of(self, batch: Batch) -> list[int | None]:
        """The partition of each row."""
        unpack = _PARTITION.unpack_from
        return [unpack(value)[0] for value in batch.values]


def kept_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    r"""The key under which a subscription is kept.

    >>> kept_key(b"ann", b"order-7")
    b'\x00\x00\x00\x03annorder-7'
    """
    return b"".join((_LENGTH.pack(len(foreign_key)), foreign_key, primary_key))


def kept_range(foreign_key: bytes) -> KeyRange:
    """Where all subscriptions of a right row are kept."""
    prefix = kept_key(foreign_key, b"")
    end = after_prefix(prefix)
    assert end is not None  # a key is shorter than 4 GiB
    return prefix, end
