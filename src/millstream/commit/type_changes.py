"""Whether what is kept can be read by the program to run: what the manifest says against its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from millstream.commit.manifest import Manifest
from millstream.serdes.descriptor import SerdeDescriptor, incompatibility, with_inferred
from millstream.topology.stored_types import KeyValueTypes, StoredTypes

InferredType = Callable[[str, str], str | None]


def incompatible_types(head: Manifest, types: StoredTypes) -> list[str]:
    """What can't be read as it was written, a line each; nothing if the program may go on.

    Manifests from before types were kept have nothing to compare with. The next one has.
    """
    before = head.types
    if isinstance(before, msgspec.UnsetType) or not head.tasks:
        return []  # without a task that has sealed there is nothing to read
    inferred_types = _inferred_of(head)
    return [
        line
        for what, old, new in (
            ("store", before.stores, types.stores),
            ("topic", before.source_topics, types.source_topics),
        )
        for name in sorted(old.keys() & new.keys())
        for line in _changes(f"{what} {name!r}", name, old[name], new[name], inferred_types)
    ] + [
        line
        for name in sorted(before.repartition_keys.keys() & types.repartition_keys.keys())
        for line in _change(
            f"repartition {name!r}",
            name,
            "key",
            before.repartition_keys[name],
            types.repartition_keys[name],
            inferred_types,
        )
    ]


def other_windows(head: Manifest, types: StoredTypes) -> list[str]:
    """Stores whose rows are of other windows than the program has, a line each.

    Manifests from before windows were kept have nothing to compare with. The next one has.
    """
    if isinstance(head.types, msgspec.UnsetType) or not head.tasks:
        return []
    old, new = head.types.stores, types.stores
    return [
        f"store {name!r}: its windows {change}"
        for name in sorted(old.keys() & new.keys())
        if (change := _window_change(old[name], new[name])) is not None
    ]


def store_changes(head: Manifest, store: str, types: KeyValueTypes) -> list[str]:
    """The same as `incompatible_types` for one store that is only read."""
    if isinstance(head.types, msgspec.UnsetType) or not head.tasks or store not in head.types.stores:
        return []
    return list(_changes(f"store {store!r}", store, head.types.stores[store], types, _inferred_of(head)))


def _changes(
    what: str, name: str, old: KeyValueTypes, new: KeyValueTypes, inferred_types: InferredType
) -> Iterator[str]:
    yield from _change(what, name, "key", old.key, new.key, inferred_types)
    yield from _change(what, name, "value", old.value, new.value, inferred_types)


def _window_change(old: KeyValueTypes, new: KeyValueTypes) -> str | None:
    was, now = old.window_size_ms, new.window_size_ms
    if None not in {was, now} and was != now:
        return f"were {was} ms long and are {now} ms long now"
    if None not in {old.windows, new.windows} and old.windows != new.windows:
        return f"were {old.windows}, and are {new.windows} now"
    return None


def _change(
    what: str, name: str, part: str, old: SerdeDescriptor, new: SerdeDescriptor, inferred_types: InferredType
) -> Iterator[str]:
    kind = inferred_types(name, part)
    why = incompatibility(with_inferred(old, kind), with_inferred(new, kind), same_bytes=part == "key")
    if why is not None:
        yield f"{what}: its {part}s {why}"


def _inferred_of(head: Manifest) -> InferredType:
    known = {(name, part): kind for name, part, kind in head.inferred_types}
    return lambda name, part: known.get((name, part))
