"""The order in which Java's hash collections list strings.

Kafka's `describe()` prints some sets in that order, and tools compare its text. Needed nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence


def hash_order(names: Sequence[str]) -> list[str]:
    """The names as a `HashMap` that got them one by one would iterate over them."""
    distinct = list(dict.fromkeys(names))
    capacity = 16
    while len(distinct) > capacity * 3 // 4:
        capacity *= 2
    return sorted(distinct, key=lambda name: _spread(_hash_code(name)) & (capacity - 1))


def _hash_code(text: str) -> int:
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        code = (31 * code + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return code


def _spread(code: int) -> int:
    return code ^ (code >> 16)
