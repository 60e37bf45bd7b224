"""Which serde each topic and store uses, with `serdes.auto` bound to each by name.

What an automatic serde has inferred belongs to the topic or store, not to the task that was first to
write: the book is kept, and a later task goes on with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from millstream.serdes import Serde, auto, bind, find_auto

Part = Literal["key", "value"]


class SerdeBook:
    """Bound serdes by topic or store."""

    def __init__(self) -> None:
        self._bound: dict[tuple[str, Part], Serde[Any]] = {}
        self._known: dict[tuple[str, Part], str] = {}

    def bound(self, name: str, part: Part, serde: Any) -> Serde[Any]:
        """The serde for a topic or store; None means automatic.

        Whoever writes a topic and whoever reads it must agree on an automatic serde, so it is made once.
        An explicit one is not shared: two sinks of one topic may write with different serdes.
        """
        if serde is not None and bind(serde, name) is serde:
            explicit: Serde[Any] = serde
            return explicit
        key = (name, part)
        if key not in self._bound:
            self._bound[key] = bind(auto if serde is None else serde, name)
            self._restore(key)
        return self._bound[key]

    def inferred_types(self) -> dict[tuple[str, Part], str]:
        """What the automatic serdes have inferred so far."""
        found = dict(self._known)
        for key, serde in self._bound.items():
            automatic = find_auto(serde)
            if automatic is not None and automatic.inferred_type is not None:
                found[key] = automatic.inferred_type
        return found

    def restore(self, inferred_types: Mapping[tuple[str, Part], str]) -> None:
        """Go on with what was inferred before."""
        self._known.update(inferred_types)
        for key in inferred_types:
            if key in self._bound:
                self._restore(key)

    def _restore(self, key: tuple[str, Part]) -> None:
        automatic = find_auto(self._bound[key])
        if automatic is not None and key in self._known:
            automatic.inferred_type = self._known[key]
