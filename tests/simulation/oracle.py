"""The naive oracle: what an application must look like from outside, after any fault.

It is given plain facts (the input that a test wrote, manifests as dictionaries, topics and stores as they
were read back) and computes everything again, one record at a time, in the simplest way there is. It shares
no code with the engine: nothing of it is imported here, hashing and encodings included. :func:`check` raises
:class:`InvariantBroken`, whose message begins with the invariant:

== ============================================================================================
I1 no loss: every input record below the committed position is reflected
I2 no double effect: no input record is reflected twice, in state or in output
I3 the output of a key keeps the order of its input
I4 state equals the fold of the input up to the committed position, at every commit there ever was
I5 replaying the changelog into an empty store gives the bytes of the store
I6 a standby at a version equals the active store at that version, byte for byte
I7 a manifest names only what is there, whole; positions never go back; no store is above the head
I8 an attempt that lost is nowhere to be seen
== ============================================================================================

Maintenance removes old manifests, sealed files, and records that nobody needs. So a test gives two things:
all that it ever saw, and what is there now. The first is compared with the fold; the second must be a part of
the first, and enough for every commit that is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from tests.simulation.oracle_programs import (
    NOTE,
    PROGRAMS,
    Partitions,
    Program,
    Row,
    first_live_segment,
    is_expired,
)

__all__ = [
    "PROGRAMS",
    "Copy",
    "Facts",
    "Held",
    "InvariantBroken",
    "Program",
    "Row",
    "Verdict",
    "check",
    "check_snapshots",
    "check_versions",
    "digest_of",
    "manifest_of",
]

_FRAME_HEADER_BYTES: Final = 16
_RESTORING: Final = -1


class InvariantBroken(AssertionError):  # noqa: N818 - it says what happened
    """The application is not what its input and its manifests say."""


# What the oracle is told ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Copy:
    """A local copy of a task's store: which version it claims, how far in the changelog, and its rows."""

    version: int
    position: int
    rows: Mapping[bytes, bytes]
    toward: int = 0
    """The version to which it is on its way, if it says so."""


@dataclass(frozen=True, slots=True)
class Held:
    """A partition as it is now: records by offset, of which maintenance may have removed some."""

    start: int
    end: int
    rows: Mapping[int, Row]


@dataclass(frozen=True, slots=True)
class Facts:
    """An application as it was found: all that was ever seen of it, and what is there now."""

    inputs: Mapping[str, Partitions]
    """What the test wrote and got acknowledged; kept by the test, not read back."""
    manifests: Sequence[Mapping[str, Any]]
    """All manifests there ever were, in the order of their epochs, each as :func:`manifest_of` gives it."""
    outputs: Mapping[str, Partitions]
    """All records that were ever seen."""
    changelogs: Mapping[str, Partitions]
    """The same, by store. Of one that follows an input: what the test wrote there, as rows of the store."""
    stores: Mapping[tuple[str, str], Copy]
    """Local copies by task and store."""
    sealed: Mapping[str, bytes]
    """What is in the sealed files that are on disk."""
    referenced: AbstractSet[str]
    """Sealed files into which topics point."""
    standbys: Mapping[tuple[str, str], Copy] = field(default_factory=dict)
    forgetful: AbstractSet[str] = frozenset()
    """Stores without a changelog whose disk was lost: they may have forgotten."""
    settled: bool = True
    """False: a coordinator died and nobody has come after it; its last epoch may be published in part."""
    applied: AbstractSet[str] = frozenset()
    """Tasks whose last epoch was applied (step 10): each of their stores must be at the task's version."""
    kept: AbstractSet[int] | None = None
    """Epochs whose manifests are there now; None: all."""
    retained_manifests: int = 1
    """How many of them must be there at least."""
    outputs_now: Mapping[str, Sequence[Held]] = field(default_factory=dict)
    """What topics hold now; nothing is compared of a topic that is left out."""
    changelogs_now: Mapping[str, Sequence[Held]] = field(default_factory=dict)
    retention: AbstractSet[str] = frozenset()
    """Outputs whose oldest records may be gone."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was checked, so that a test can refuse an empty result."""

    epochs: int
    records: int
    outputs: int


def manifest_of(data: bytes) -> dict[str, Any]:
    """A manifest's file as a dictionary, with the digest of the file.

    >>> frame = bytes(16) + b'{"epoch":1}'
    >>> manifest_of(frame)["epoch"]
    1
    """
    content: dict[str, Any] = json.loads(data[_FRAME_HEADER_BYTES:])
    return {**content, "digest": digest_of(data)}


def digest_of(data: bytes) -> str:
    """How the engine names the content of a file."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


# The check --------------------------------------------------------------------------------------------


def check(program: Program, facts: Facts) -> Verdict:
    """Compare the facts with a program that has not seen anything yet."""
    _check_chain(facts)
    _check_named_files(facts)
    expected: dict[str, list[Row]] = {topic: [] for topic in program.outputs}
    last_epoch: dict[str, list[Row]] = {}
    before: dict[tuple[str, int], int] = {}
    for number, manifest in enumerate(facts.manifests, 1):
        positions = {(topic, partition): offset for topic, partition, offset in manifest["positions"]}
        last_epoch = program.epoch(_cut(facts.inputs, before, positions))
        is_open = number == len(facts.manifests) and not facts.settled
        _check_state(program, facts, manifest, is_open=is_open)
        for topic, rows in last_epoch.items():
            expected[topic] += rows
        before = positions
    for topic, rows in expected.items():
        _check_output(topic, rows, () if facts.settled else last_epoch.get(topic, ()), facts.outputs[topic])
    _check_changelogs(program, facts)
    _check_copies(program, facts)
    _check_outputs_now(facts)
    _check_changelogs_now(program, facts)
    return Verdict(len(facts.manifests), sum(before.values()), sum(map(len, expected.values())))


def check_versions(manifests: Sequence[Mapping[str, Any]], stores: Mapping[tuple[str, str], Copy]) -> None:
    """Only that no local store is above the head. Can be asked at any time, also while everything is dead."""
    history = _versions(manifests)
    for (task, store), copy in stores.items():
        _check_below_head(f"store {store} of task {task}", copy, history.get(task, {0: {}}))


def check_snapshots(program: Program, facts: Facts, snapshots: Sequence[tuple[str, str, Copy]]) -> None:
    """Snapshots are copies as good as any other, at versions that were committed."""
    history = _versions(facts.manifests)
    for task, store, copy in snapshots:
        what = f"snapshot {copy.version} of store {store} of task {task}"
        _must(copy.version > 0, "I7", f"{what} is of no version")
        _check_copy(what, copy, task, store, program, facts, history)


def _cut(
    inputs: Mapping[str, Partitions], start: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int]
) -> dict[str, list[Sequence[Row]]]:
    return {
        topic: [
            rows[start.get((topic, partition), 0) : end.get((topic, partition), 0)]
            for partition, rows in enumerate(partitions)
        ]
        for topic, partitions in inputs.items()
    }


def _check_chain(facts: Facts) -> None:
    """The chain of manifests is whole, and nothing in it goes back."""
    if not facts.manifests:
        return
    _must(facts.manifests[0]["epoch"] == 1, "I7", "the first manifest is not that of epoch 1")
    for before, after in pairwise(facts.manifests):
        epoch = after["epoch"]
        _must(epoch == before["epoch"] + 1, "I7", f"manifest {epoch} follows manifest {before['epoch']}")
        _must(after["parent"] == before["digest"], "I7", f"manifest {epoch} names another parent")
        _must(after["term"] >= before["term"], "I7", f"manifest {epoch} is of an earlier term")
        ends = {(topic, partition): offset for topic, partition, offset in after["positions"]}
        for topic, partition, offset in before["positions"]:
            _must(
                ends.get((topic, partition), -1) >= offset, "I7", f"{topic}-{partition} goes back in {epoch}"
            )
        for task, entry in before["tasks"].items():
            _check_successor(task, entry, after)
    for manifest in facts.manifests:
        for topic, partition, offset in manifest["positions"]:
            written = len(facts.inputs[topic][partition])
            _must(offset <= written, "I7", f"{topic}-{partition} is at {offset} of {written} records")
        for task in manifest["sealed"]:
            version = manifest["tasks"][task]["version"]
            _must(version == manifest["epoch"], "I7", f"task {task} sealed, but is at version {version}")
    _check_kept(facts)


def _check_kept(facts: Facts) -> None:
    """The manifests that the head says are kept are there, and enough of them."""
    for before, after in pairwise(facts.manifests):
        _must(after["oldest"] >= before["oldest"], "I7", f"manifest {after['epoch']} keeps what was let go")
    head = facts.manifests[-1]
    oldest, epoch = head["oldest"], head["epoch"]
    enough = max(1, epoch - facts.retained_manifests + 1)
    _must(oldest <= enough, "I7", f"manifests are kept from epoch {oldest} on, not from {enough}")
    if facts.kept is not None:
        missing = sorted(set(range(oldest, epoch + 1)) - facts.kept)
        _must(not missing, "I7", f"manifests {missing} are gone, and kept from epoch {oldest} on")


def _check_successor(task: str, entry: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    epoch = after["epoch"]
    _must(task in after["tasks"], "I7", f"manifest {epoch} has forgotten task {task}")
    found = after["tasks"][task]
    _must(
        task in after["sealed"] or found == entry, "I7", f"task {task} did not seal in {epoch}, but changed"
    )
    for store, position in entry["changelogs"].items():
        _must(
            found["changelogs"].get(store, -1) >= position,
            "I7",
            f"the changelog of {store} goes back in {epoch}",
        )


def _check_named_files(facts: Facts) -> None:
    """What tasks were last, and what the manifests that are kept were made of, is there."""
    if not facts.manifests:
        return
    head = facts.manifests[-1]
    needed = [entry for entry in head["tasks"].values() if entry["part"] == [0, 0]]
    needed += [manifest["tasks"][task] for manifest in _kept(facts) for task in manifest["sealed"]]
    for entry in (entry for manifest in facts.manifests for entry in manifest["tasks"].values()):
        rows = entry["sections"] or entry["changelogs"]
        _must(entry["file"] or not rows, "I7", f"an entry with {rows} has no file")
    for entry in needed:
        file, (start, length) = entry["file"], entry["part"]
        if not file:
            continue  # of a task that had nothing to write
        _must(file in facts.sealed, "I7", f"{file} is named by a manifest and is not there")
        part = facts.sealed[file][start : start + length] if length else facts.sealed[file]
        _must(digest_of(part) == entry["digest"], "I7", f"{file} is not the file that was named")
    named = {entry["file"] for manifest in facts.manifests for entry in manifest["tasks"].values()}
    strangers = sorted(facts.referenced - named)
    _must(not strangers, "I8", f"topics show {strangers}, which no manifest names")


def _kept(facts: Facts) -> list[Mapping[str, Any]]:
    """The manifests at which a store may be asked for."""
    oldest = facts.manifests[-1]["oldest"] if facts.manifests else 1
    return [manifest for manifest in facts.manifests if manifest["epoch"] >= oldest]


def _check_state(program: Program, facts: Facts, manifest: Mapping[str, Any], *, is_open: bool) -> None:
    """The changelogs up to the manifest's positions, replayed, are the fold of its input."""
    for store in (*program.logged, *program.followed):
        found: dict[bytes, bytes] = {}
        complete = True
        for task, entry in manifest["tasks"].items():
            if store not in entry["changelogs"]:
                continue
            rows = facts.changelogs[store][_partition(task)]
            position = entry["changelogs"][store]
            complete = complete and len(rows) >= position
            _must(
                is_open or len(rows) >= position,
                "I1",
                f"the changelog of {store} ends before {position} ({task})",
            )
            replayed = _replayed(rows[:position], segmented=store in program.segmented)
            note = replayed.pop(NOTE, None)
            if len(rows) >= position:
                wanted = program.notes.get((store, _partition(task)))
                _must(note == wanted, "I4", f"{store} of task {task} notes {note!r}, not {wanted!r}")
            twice = sorted(found.keys() & replayed.keys())
            _must(not twice, "I2", f"{store} has {twice} in two tasks")
            found |= replayed
        if complete:
            where = f"store {store} at epoch {manifest['epoch']}"
            _must(found == program.state[store], "I4", f"{where}: {_difference(program.state[store], found)}")


def _check_output(topic: str, expected: Sequence[Row], unsure: Sequence[Row], found: Partitions) -> None:
    """Per key, what was written is what must be, in order. The rows of `unsure` may be missing."""
    places: dict[bytes | None, int] = {}
    by_key: dict[bytes | None, list[Row]] = {}
    for partition, rows in enumerate(found):
        for row in rows:
            by_key.setdefault(row[0], []).append(row)
            _must(
                places.setdefault(row[0], partition) == partition,
                "I3",
                f"{topic}: {row[0]!r} is in two partitions",
            )
    late = Counter(row[0] for row in unsure)
    for key in {row[0] for row in expected} | by_key.keys():
        wanted, got = [row for row in expected if row[0] == key], by_key.get(key, [])
        if got in (wanted, wanted[: len(wanted) - late[key]]):
            continue
        where = f"{topic}, key {key!r}: expected {_shown(wanted)}, found {_shown(got)}"
        lost, more = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
        _must(not more or bool(lost), "I2", where)
        _must(not lost, "I1", where)
        _must(condition=False, invariant="I3", what=where)


def _check_changelogs(program: Program, facts: Facts) -> None:
    """Nothing stands in a changelog behind what the head names. An input goes on."""
    if not facts.manifests:
        return
    named: Counter[tuple[str, int]] = Counter()
    for task, entry in facts.manifests[-1]["tasks"].items():
        for store, position in entry["changelogs"].items():
            named[store, _partition(task)] = position
    for store in program.logged:
        for partition, rows in enumerate(facts.changelogs[store]):
            end = named[store, partition]
            _must(
                len(rows) <= end,
                "I8",
                f"the changelog of {store}-{partition} has {len(rows)} rows, named are {end}",
            )


def _check_copies(program: Program, facts: Facts) -> None:
    history = _versions(facts.manifests)
    for kind, copies in (("store", facts.stores), ("standby", facts.standbys)):
        for (task, store), copy in copies.items():
            _check_copy(f"{kind} {store} of task {task}", copy, task, store, program, facts, history)
    for (task, store), copy in facts.stores.items():
        head = max(history.get(task, {0: {}}))
        what = f"store {store} of task {task} is at version {copy.version} after {head} was applied"
        _must(task not in facts.applied or copy.version == head, "I4", what)
    is_whole = not facts.manifests or facts.manifests[-1]["oldest"] == 1
    for place, standby in facts.standbys.items():
        if not is_whole and place[1] in program.unlogged:
            continue  # made from sealed files, the first of which are gone
        active = facts.stores.get(place)
        if active is not None and active.version == standby.version:
            what = f"standby {place} at version {standby.version}: {_difference(active.rows, standby.rows)}"
            _must(active.rows == standby.rows, "I6", what)
    for store in program.unlogged:
        _check_unlogged(program, facts, store, history)


def _check_copy(
    what: str,
    copy: Copy,
    task: str,
    store: str,
    program: Program,
    facts: Facts,
    history: Mapping[str, Mapping[int, Mapping[str, int]]],
) -> None:
    versions = history.get(task, {0: {}})
    head = max(versions)
    _check_below_head(what, copy, versions)
    if store not in facts.changelogs:
        return
    end = versions[head].get(store, 0)
    _must(copy.position <= end, "I7", f"{what} is at offset {copy.position} of its changelog, above {end}")
    if copy.version != _RESTORING:
        _must(
            copy.version in versions, "I7", f"{what} is at version {copy.version}, which was never committed"
        )
        named = versions[copy.version].get(store, 0)
        _must(
            copy.position == named,
            "I7",
            f"{what}: version {copy.version} is at offset {named}, not {copy.position}",
        )
    rows = facts.changelogs[store][_partition(task)]
    replayed = _replayed(rows[: copy.position], segmented=store in program.segmented)
    if copy.version != _RESTORING:
        _must(dict(copy.rows) == replayed, "I5", f"{what}: {_difference(replayed, copy.rows)}")
        return
    # On its way it may have some of the rows up to where it goes: those that it has were written.
    _must(copy.toward in {0, *versions}, "I7", f"{what} is on its way to {copy.toward}, which is unknown")
    there = versions[copy.toward or head].get(store, 0)
    strangers = set(copy.rows.items()) - {(key, value) for key, value, _ in rows[:there]}
    _must(not strangers, "I5", f"{what} holds {sorted(strangers)[:3]}, which nobody wrote")
    if _has_gaps(facts, store, _partition(task), copy.position):
        return  # over records that were compacted: what it lacks comes later
    # And all other rows are those of where it stands, unless they have expired on the way.
    arrived = _replayed(rows[:there], segmented=store in program.segmented)
    changed = {key for key, _, _ in rows[copy.position : there]} | (replayed.keys() - arrived.keys())
    same, found = ({k: v for k, v in kept.items() if k not in changed} for kept in (replayed, copy.rows))
    _must(found == same, "I5", f"{what}: {_difference(same, found)}")


def _has_gaps(facts: Facts, store: str, partition: int, position: int) -> bool:
    held = facts.changelogs_now.get(store)
    return held is not None and any(offset not in held[partition].rows for offset in range(position))


def _check_outputs_now(facts: Facts) -> None:
    """What an output holds is all that it ever held; with a retention, from some offset on."""
    for topic, partitions in facts.outputs_now.items():
        for number, held in enumerate(partitions):
            _check_held(f"{topic}-{number}", held, facts.outputs[topic][number])
            _must(
                not held.start or topic in facts.retention, "I1", f"{topic}-{number} begins at {held.start}"
            )
            lost = [offset for offset in range(held.start, held.end) if offset not in held.rows]
            _must(not lost, "I1", f"{topic}-{number} has lost the offsets {lost[:5]}")


def _check_changelogs_now(program: Program, facts: Facts) -> None:
    """What a changelog holds is enough to build every version that may be asked for."""
    for store, partitions in facts.changelogs_now.items():
        for number, held in enumerate(partitions):
            _check_held(f"changelog of {store}-{number}", held, facts.changelogs[store][number])
    for manifest in _kept(facts):
        for task, entry in manifest["tasks"].items():
            for store in entry["changelogs"].keys() & facts.changelogs_now.keys():
                position, number = entry["changelogs"][store], _partition(task)
                held = facts.changelogs_now[store][number]
                if position > held.end:
                    continue  # not published yet, which was asked about before
                is_segmented = store in program.segmented
                left = [row for offset, row in sorted(held.rows.items()) if offset < position]
                found = _replayed(left, segmented=is_segmented)
                wanted = _replayed(facts.changelogs[store][number][:position], segmented=is_segmented)
                where = f"what is left of {store}-{number} for epoch {manifest['epoch']}"
                _must(found == wanted, "I4", f"{where}: {_difference(wanted, found)}")


def _check_held(what: str, held: Held, seen: Sequence[Row]) -> None:
    _must(held.end == len(seen), "I1", f"{what} ends at {held.end}, but {len(seen)} records were seen")
    for offset, row in held.rows.items():
        _must(row == seen[offset], "I2", f"{what}, offset {offset}: {row} was {seen[offset]}")


def _check_below_head(what: str, copy: Copy, versions: Mapping[int, Mapping[str, int]]) -> None:
    head = max(versions)
    _must(copy.version <= head, "I7", f"{what} is at version {copy.version}, above the head ({head})")


def _check_unlogged(
    program: Program, facts: Facts, store: str, history: Mapping[str, Mapping[int, Mapping[str, int]]]
) -> None:
    """A store without a changelog can be compared as a whole, when all of its copies are at the head."""
    copies = {task: copy for (task, name), copy in facts.stores.items() if name == store}
    if store in facts.forgetful or any(
        copy.version != max(history.get(t, {0: {}})) for t, copy in copies.items()
    ):
        return
    found = {key: value for copy in copies.values() for key, value in copy.rows.items()}
    if copies:
        _must(
            found == program.state[store], "I4", f"store {store}: {_difference(program.state[store], found)}"
        )


def _versions(manifests: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, Mapping[str, int]]]:
    """Per task, every version it ever had and the changelog positions of that version."""
    history: dict[str, dict[int, Mapping[str, int]]] = {}
    for manifest in manifests:
        for task, entry in manifest["tasks"].items():
            history.setdefault(task, {0: {}})[entry["version"]] = entry["changelogs"]
    return history


def _replayed(rows: Iterable[Row], *, segmented: bool) -> dict[bytes, bytes]:
    store: dict[bytes, bytes] = {}
    for key, value, _ in rows:
        assert key is not None
        if value is None:
            store.pop(key, None)
        else:
            store[key] = value
    if segmented:
        first_live = first_live_segment(store.get(NOTE))
        return {key: value for key, value in store.items() if not is_expired(key, first_live)}
    return store


def _partition(task: str) -> int:
    return int(task.split("_")[1])


def _must(condition: bool, invariant: str, what: str) -> None:
    if not condition:
        raise InvariantBroken(f"{invariant}: {what}")


def _difference(expected: Mapping[bytes, bytes], found: Mapping[bytes, bytes]) -> str:
    keys = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    return ", ".join(f"{key!r} is {found.get(key)!r}, not {expected.get(key)!r}" for key in keys[:3])


def _shown(rows: Sequence[Row]) -> str:
    return f"[{', '.join(f'{value!r}@{time}' for _, value, time in rows)}]"
