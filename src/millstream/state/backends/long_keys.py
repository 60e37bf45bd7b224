r"""Keys of any length, in exact bytewise order, over tables whose keys have a largest length.

LMDB's keys have 1 to 511 bytes. A longer key cannot be hashed (order) nor packed with its neighbours into one
value (a bucket of a million keys that share a prefix would be rewritten for each of them). So it is cut into
chunks, and stored as a path through a tree of nodes, like a word in a trie.

Two tables are used. With M, the largest length (511):

**root** holds short keys (up to R = M - 2 bytes) with their values, and for every R-byte prefix p that long
keys have, a *link* to the node of their rests. **nodes** holds, for each node, the rests of up to Q = M - 9
bytes with their values, and again links for longer ones. A node is a number of 8 bytes, put before its keys::

    root    encode_key(key)      -> value             1 .. M-1 bytes
            p + 01 01            -> node              M bytes, p = the key's first R bytes
    nodes   node + rest          -> value             9 .. M-1 bytes
            node + q + 00        -> next node         M bytes, q = the rest's first Q bytes
            00 00 00 00 00 00 00 00 -> last node number given

So **a stored key of exactly M bytes is a link**, and nothing else is. (:mod:`.key_encoding` makes room for
the empty key.) Nodes are made by the first key that needs them and go with the last one; their numbers are
not used again.

Why the order is exact, at the root and in each node alike: let p be a full chunk. The short key p itself, if
there is one, is stored right before the link of p (as p, or as p + 00 if p is all zeros). Keys below the link
begin with p and are longer, so they are greater than p. Any other short key differs from p within p's length
(or is shorter and a prefix of it, thus smaller), so it is on the same side of p as of all keys that begin
with p. Hence walking a table in order, and each link's node where the link stands, visits the keys in order;
and to find where a long key belongs is to find its link.

Nothing here knows LMDB: tests run the same code with M = 12, where every edge is near.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.state.backends.base import Row
from millstream.state.backends.key_encoding import decode_key, encode_key

_ROOT_LINK: Final = b"\1\1"
_NODE_LINK: Final = b"\0"
_NODE_BYTES: Final = 8
_COUNTER: Final = bytes(_NODE_BYTES)
_ROOT: Final = b""


class _Cursor(Protocol):
    """A place in a sorted table; methods that move it tell whether there is an entry at the new place.

    `set_range` goes to the first entry at or behind a key; `item` is the key and value of the entry here.
    """

    def set_range(self, key: bytes, /) -> bool: ...
    def last(self) -> bool: ...
    def next(self) -> bool: ...
    def prev(self) -> bool: ...
    def item(self) -> Row: ...


class _Table(Protocol):
    """A sorted map from keys of 1 to M bytes to values. What is deleted may be absent."""

    def get(self, key: bytes, /) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, /) -> object: ...
    def delete(self, key: bytes, /) -> object: ...
    def cursor(self) -> _Cursor: ...


def short_key_bytes(max_key_bytes: int) -> int:
    """Return the length up to which a key is stored in the root table, encoded, and needs no tree."""
    return max_key_bytes - len(_ROOT_LINK)


@dataclass(slots=True)
class _Level:
    """Where a walk is, in the root or in one node."""

    cursor: _Cursor
    node: bytes
    prefix: bytes
    """What comes before every key of this level."""
    found: bool
    """Whether the cursor stands on an entry."""


class LongKeyTree:
    """Long keys in two tables. Get, put and delete are for long keys only; walks give all keys."""

    def __init__(self, root: _Table, nodes: _Table, max_key_bytes: int) -> None:
        assert max_key_bytes > _NODE_BYTES + len(_NODE_LINK) + 1, "a node's keys need room for a chunk"
        self._root = root
        self._nodes = nodes
        self._link_bytes = max_key_bytes
        self._root_chunk = short_key_bytes(max_key_bytes)
        self._node_chunk = max_key_bytes - _NODE_BYTES - len(_NODE_LINK)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a long key, or None."""
        *links, leaf = self._chunks(key)
        node: bytes | None = self._root.get(links[0])
        for link in links[1:]:
            if node is None:
                return None
            node = self._nodes.get(node + link)
        return None if node is None else self._nodes.get(node + leaf)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a long key."""
        *links, leaf = self._chunks(key)
        node = _ROOT
        for link in links:
            table = self._nodes if node else self._root
            child = table.get(node + link)
            if child is None:
                child = self._new_node()
                table.put(node + link, child)
            node = child
        self._nodes.put(node + leaf, value)

    def delete(self, key: bytes) -> None:
        """Remove a long key, if it is there, and the nodes that only it needed."""
        *links, leaf = self._chunks(key)
        path: list[tuple[_Table, bytes]] = []
        node = _ROOT
        for link in links:
            table = self._nodes if node else self._root
            path.append((table, node + link))
            child = table.get(node + link)
            if child is None:
                return
            node = child
        self._nodes.delete(node + leaf)
        while path and self._is_empty(node):
            table, stored = path.pop()
            table.delete(stored)
            node = stored[:_NODE_BYTES]  # of the root's link, which is the last, it is not used

    def ascend(self, start: bytes) -> Iterator[Row]:
        """Walk over all keys, short and long, from ``start`` (inclusive)."""
        return self._walk(start, reverse=False)

    def descend(self, end: bytes | None) -> Iterator[Row]:
        """Walk over all keys, short and long, from ``end`` (exclusive; None: the last one) backwards."""
        return self._walk(end, reverse=True)

    def _walk(self, bound: bytes | None, *, reverse: bool) -> Iterator[Row]:
        entered = self._entered_backward if reverse else self._entered_forward
        levels = [entered(_ROOT, b"", bound)]
        while levels:
            level = levels[-1]
            if not level.found:
                levels.pop()
                continue
            stored, value = level.cursor.item()
            level.found = (level.cursor.prev() if reverse else level.cursor.next()) and self._is_in(level)
            if len(stored) == self._link_bytes:
                node = level.node
                chunk = stored[_NODE_BYTES : -len(_NODE_LINK)] if node else stored[: self._root_chunk]
                prefix = level.prefix + chunk
                inside = bound[len(prefix) :] if bound is not None and bound.startswith(prefix) else None
                levels.append(entered(value, prefix, inside))
            else:
                yield level.prefix + (stored[_NODE_BYTES:] if level.node else decode_key(stored)), value

    def _entered_forward(self, node: bytes, prefix: bytes, start: bytes | None) -> _Level:
        level = _Level((self._nodes if node else self._root).cursor(), node, prefix, found=False)
        level.found = level.cursor.set_range(self._place(node, start or b"")) and self._is_in(level)
        return level

    def _entered_backward(self, node: bytes, prefix: bytes, end: bytes | None) -> _Level:
        level = _Level((self._nodes if node else self._root).cursor(), node, prefix, found=False)
        cursor = level.cursor
        place = self._behind(node) if end is None else self._place(node, end)
        if place is None or not cursor.set_range(place):
            level.found = cursor.last()
        elif end is not None and len(place) == self._link_bytes and cursor.item()[0] == place:
            level.found = True  # a long end: some of what is below its own link comes before it
        else:
            level.found = cursor.prev()
        level.found = level.found and self._is_in(level)
        return level

    def _is_in(self, level: _Level) -> bool:
        return level.cursor.item()[0].startswith(level.node) if level.node else True

    def _is_empty(self, node: bytes) -> bool:
        cursor = self._nodes.cursor()
        return not (cursor.set_range(node) and cursor.item()[0].startswith(node))

    def _place(self, node: bytes, key: bytes) -> bytes:
        """Where in a level a key, or the link to it, stands or would stand."""
        if node:
            chunk = self._node_chunk
            return node + (key if len(key) <= chunk else key[:chunk] + _NODE_LINK)
        chunk = self._root_chunk
        return encode_key(key) if len(key) <= chunk else key[:chunk] + _ROOT_LINK

    def _behind(self, node: bytes) -> bytes | None:
        return (int.from_bytes(node) + 1).to_bytes(_NODE_BYTES) if node else None

    def _chunks(self, key: bytes) -> list[bytes]:
        """Cut a long key: the root's link, links of nodes, and the rest at the end (never empty)."""
        first, size = self._root_chunk, self._node_chunk
        assert len(key) > first, "a short key needs no tree"
        chunks = [key[:first] + _ROOT_LINK]
        at = first
        while len(key) - at > size:
            chunks.append(key[at : at + size] + _NODE_LINK)
            at += size
        chunks.append(key[at:])
        return chunks

    def _new_node(self) -> bytes:
        number = int.from_bytes(self._nodes.get(_COUNTER) or _COUNTER) + 1
        node = number.to_bytes(_NODE_BYTES)
        self._nodes.put(_COUNTER, node)
        return node
