"""The order in which Java's collections list what is in them.

Kafka's `describe()` prints some sets in that order, and tools compare its text. Needed nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


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


@dataclass(eq=False)
class _Branch(Generic[T]):
    item: T
    parent: _Branch[T] | None
    left: _Branch[T] | None = None
    right: _Branch[T] | None = None
    red: bool = True


class TreeSet(Generic[T]):
    """A `TreeSet`: sorted by rank, but by the ranks that items have when others are put beside them.

    Where ranks change later, the order depends on the shape of the tree: it is a red-black tree, as Java's.

    >>> names = TreeSet(len)
    >>> for name in ("ccc", "a", "bb"):
    ...     names.add(name)
    >>> list(names)
    ['a', 'bb', 'ccc']
    """

    def __init__(self, rank: Callable[[T], Any]) -> None:
        self._rank = rank
        self._root: _Branch[T] | None = None

    def __iter__(self) -> Iterator[T]:
        def below(branch: _Branch[T] | None) -> Iterator[T]:
            if branch is not None:
                yield from below(branch.left)
                yield branch.item
                yield from below(branch.right)

        return below(self._root)

    def add(self, item: T) -> None:
        """Put an item where it belongs today."""
        rank = self._rank(item)
        parent, place = None, self._root
        while place is not None:
            parent = place
            place = place.left if rank < self._rank(place.item) else place.right
        branch = _Branch(item, parent)
        if parent is None:
            self._root = branch
        elif rank < self._rank(parent.item):
            parent.left = branch
        else:
            parent.right = branch
        self._balance(branch)

    def _balance(self, branch: _Branch[T]) -> None:
        while (parent := branch.parent) is not None and parent.red:
            above = parent.parent
            assert above is not None  # the root is black
            on_the_left = parent is above.left
            uncle = above.right if on_the_left else above.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                branch = above
                continue
            if branch is (parent.right if on_the_left else parent.left):
                self._rotate(parent, to_the_left=on_the_left)
                branch, parent = parent, branch
            parent.red, above.red = False, True
            self._rotate(above, to_the_left=not on_the_left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, branch: _Branch[T], *, to_the_left: bool) -> None:
        """The child on one side takes the branch's place, and the branch hangs on its other side."""
        child = branch.right if to_the_left else branch.left
        assert child is not None
        moved = child.left if to_the_left else child.right
        if to_the_left:
            branch.right, child.left = moved, branch
        else:
            branch.left, child.right = moved, branch
        if moved is not None:
            moved.parent = branch
        child.parent = branch.parent
        if branch.parent is None:
            self._root = child
        elif branch is branch.parent.left:
            branch.parent.left = child
        else:
            branch.parent.right = child
        branch.parent = child
