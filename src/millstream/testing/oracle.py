"""The naive oracle: what an application must look like from outside, after any fault.

It is given plain facts (the input that a test wrote, manifests as dictionaries, topics and stores as they
were read back) and computes everything again, one record at a time, in the simplest way there is. It shares
no code with the engine: nothing of Millstream is imported here, hashing and encodings included. :func:`check`
raises :class:`InvariantBroken`, whose message begins with the invariant:

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
"""

from __future__ import annotations

import hashlib
import json
import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Final, TypeAlias

__all__ = [
    "PROGRAMS",
    "Copy",
    "Facts",
    "InvariantBroken",
    "Ledger",
    "Program",
    "Stock",
    "Verdict",
    "WordCount",
    "check",
    "check_snapshots",
    "check_versions",
    "digest_of",
    "manifest_of",
]

Row: TypeAlias = tuple[bytes | None, bytes | None, int]
"""Key, value and timestamp of a record, as bytes in a log."""
Keyed: TypeAlias = tuple[bytes, bytes, int]
"""The same of a record that has a key and a value."""
Partitions: TypeAlias = Sequence[Sequence[Row]]
"""The records of a topic: by partition, by offset."""

_INT64: Final = struct.Struct(">q")
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


@dataclass(frozen=True, slots=True)
class Facts:
    """An application as it was found."""

    inputs: Mapping[str, Partitions]
    """What the test wrote and got acknowledged; kept by the test, not read back."""
    manifests: Sequence[Mapping[str, Any]]
    """All manifests in the order of their epochs, each as :func:`manifest_of` gives it."""
    outputs: Mapping[str, Partitions]
    changelogs: Mapping[str, Partitions]
    """By store."""
    stores: Mapping[tuple[str, str], Copy]
    """Local copies by task and store."""
    sealed: Mapping[str, str]
    """Digests of the sealed files that are on disk."""
    referenced: AbstractSet[str]
    """Sealed files into which topics point."""
    standbys: Mapping[tuple[str, str], Copy] = field(default_factory=dict)
    forgetful: AbstractSet[str] = frozenset()
    """Stores without a changelog whose disk was lost: they may have forgotten."""
    settled: bool = True
    """False: a driver died and nobody has come after it; its last epoch may be published in part."""
    applied: AbstractSet[str] = frozenset()
    """Tasks whose last epoch was applied (step 10): each of their stores must be at the task's version."""


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


# The programs, as folds ---------------------------------------------------------------------------------


class Program(ABC):
    """A topology as a fold: an epoch's records in, outputs out, state in dictionaries of bytes."""

    logged: ClassVar[tuple[str, ...]]
    """Stores with a changelog."""
    unlogged: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]]

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.state: dict[str, dict[bytes, bytes]] = {store: {} for store in (*self.logged, *self.unlogged)}

    @abstractmethod
    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """Take an epoch's records in; what it writes to each topic, in order for each key."""

    def shuffled(self, sent: Sequence[Sequence[Keyed]]) -> Iterator[Keyed]:
        """Rows of several senders in the order in which the tasks that they are sent to take them."""
        for task in range(self.partitions):
            yield from _by_time([[row for row in rows if self.task_of(row[0]) == task] for rows in sent])

    def task_of(self, key: bytes) -> int:
        """The task that a row is sent to."""
        return (murmur2(key) & 0x7FFFFFFF) % self.partitions


class WordCount(Program):
    """Words of lines, counted; one update per word and epoch."""

    logged = ("counts",)
    outputs = ("word-counts",)

    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """See :meth:`Program.epoch`."""
        counts = self.state["counts"]
        sent = [
            [(word, b"", time) for _, line, time in rows for word in line.split()]
            for rows in _of(cut, "lines")
        ]
        changed: dict[bytes, Row] = {}
        for word, _, time in self.shuffled(sent):
            count, before = _counted(counts.get(word))
            counts[word] = _INT64.pack(max(time, before)) + _INT64.pack(count + 1)
            changed[word] = (word, _INT64.pack(count + 1), max(time, before))
        return {"word-counts": list(changed.values())}


class Ledger(Program):
    """Orders of customers, audited in the first level, added up by shop in the second, update by update."""

    logged = ("latest", "large", "totals")
    unlogged = ("visits",)
    outputs = ("audited", "totals-out")

    LARGE: ClassVar[int] = 100

    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """See :meth:`Program.epoch`."""
        sent: list[list[Keyed]] = []
        audited: list[Row] = []
        for rows in _of(cut, "orders"):
            sent.append([])
            for customer, order, time in rows:
                self._audit(customer, order)
                audited.append((customer, order, time))
                sent[-1].append((order.split(b":")[0], order, time))
        totals = self.state["totals"]
        updates: list[Row] = []
        for shop, order, time in self.shuffled(sent):
            total, before = _counted(totals.get(shop))
            total += int(order.split(b":")[1])
            totals[shop] = _INT64.pack(max(time, before)) + _INT64.pack(total)
            updates.append((shop, _INT64.pack(total), max(time, before)))
        return {"audited": audited, "totals-out": updates}

    def _audit(self, customer: bytes, order: bytes) -> None:
        latest, large, visits = (self.state[store] for store in ("latest", "large", "visits"))
        latest[customer] = order
        visits[customer] = _INT64.pack(_plain(visits.get(customer)) + 1)
        if int(order.split(b":")[1]) >= self.LARGE:
            large[customer] = _INT64.pack(_plain(large.get(customer)) + 1)


class Stock(Program):
    """A table of items, grouped by the shop that has them: one update per item, and per shop, and epoch."""

    logged = ("items", "by-shop")
    outputs = ("by-shop-out",)

    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """See :meth:`Program.epoch`."""
        items, shops = self.state["items"], self.state["by-shop"]
        moves: list[tuple[bytes, int, int]] = []
        for rows in _of(cut, "stock"):
            before = dict(items)
            last: dict[bytes, int] = {}
            for item, place, time in rows:
                last[item] = time
                if place is None:
                    items.pop(item, None)
                else:
                    items[item] = _INT64.pack(time) + place
            for item, time in last.items():
                moves += [(shop, -amount, time) for shop, amount in _placed(before.get(item))]
                moves += [(shop, amount, time) for shop, amount in _placed(items.get(item))]
        changed: dict[bytes, Row] = {}
        for shop, amount, time in moves:
            total, earlier = _counted(shops.get(shop))
            shops[shop] = _INT64.pack(max(time, earlier)) + _INT64.pack(total + amount)
            changed[shop] = (shop, _INT64.pack(total + amount), max(time, earlier))
        return {"by-shop-out": list(changed.values())}


PROGRAMS: Final[Mapping[str, type[Program]]] = {"word count": WordCount, "ledger": Ledger, "stock": Stock}


def _of(cut: Mapping[str, Partitions], topic: str) -> Sequence[Sequence[tuple[Any, Any, int]]]:
    return cut.get(topic, ())


def _counted(cell: bytes | None) -> tuple[int, int]:
    """A number and the time it was set."""
    if cell is None:
        return 0, 0
    (time,), (number,) = _INT64.unpack_from(cell), _INT64.unpack_from(cell, _INT64.size)
    return number, time


def _plain(cell: bytes | None) -> int:
    return 0 if cell is None else int.from_bytes(cell, "big", signed=True)


def _placed(cell: bytes | None) -> list[tuple[bytes, int]]:
    if cell is None:
        return []
    shop, amount = cell[_INT64.size :].split(b":")
    return [(shop, int(amount))]


def _by_time(queues: Sequence[Sequence[Keyed]]) -> Iterator[Keyed]:
    """Always the queue whose next row is the oldest; of equal ones the first."""
    waiting = [list(queue) for queue in queues]
    while any(waiting):
        oldest = min((queue[0][2], number) for number, queue in enumerate(waiting) if queue)
        yield waiting[oldest[1]].pop(0)


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, written down from its definition.

    >>> murmur2(b"21") - 2**32
    -973932308
    """
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    value = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        part = (part ^ (part >> 24)) * multiplier & mask
        value = (value * multiplier & mask) ^ part
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    value = (value ^ (value >> 13)) * multiplier & mask
    return value ^ (value >> 15)


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
    _check_changelogs(facts)
    _check_copies(program, facts)
    return Verdict(len(facts.manifests), sum(before.values()), sum(map(len, expected.values())))


def check_versions(manifests: Sequence[Mapping[str, Any]], stores: Mapping[tuple[str, str], Copy]) -> None:
    """Only that no local store is above the head. Can be asked at any time, also while everything is dead."""
    history = _versions(manifests)
    for (task, store), copy in stores.items():
        _check_below_head(f"store {store} of task {task}", copy, history.get(task, {0: {}}))


def check_snapshots(facts: Facts, snapshots: Sequence[tuple[str, str, Copy]]) -> None:
    """Snapshots are copies as good as any other, at versions that were committed."""
    history = _versions(facts.manifests)
    for task, store, copy in snapshots:
        what = f"snapshot {copy.version} of store {store} of task {task}"
        _must(copy.version > 0, "I7", f"{what} is of no version")
        _check_copy(what, copy, task, store, facts, history)


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
    named = {
        entry["file"]: entry["digest"] for manifest in facts.manifests for entry in manifest["tasks"].values()
    }
    for file, digest in named.items():
        _must(file in facts.sealed, "I7", f"{file} is named by a manifest and is not there")
        _must(facts.sealed[file] == digest, "I7", f"{file} is not the file that was named")
    strangers = sorted(facts.referenced - set(named))
    _must(not strangers, "I8", f"topics show {strangers}, which no manifest names")


def _check_state(program: Program, facts: Facts, manifest: Mapping[str, Any], *, is_open: bool) -> None:
    """The changelogs up to the manifest's positions, replayed, are the fold of its input."""
    for store in program.logged:
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
            replayed = _replayed(rows[:position])
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


def _check_changelogs(facts: Facts) -> None:
    """Nothing stands in a changelog behind what the head names."""
    if not facts.manifests:
        return
    named: Counter[tuple[str, int]] = Counter()
    for task, entry in facts.manifests[-1]["tasks"].items():
        for store, position in entry["changelogs"].items():
            named[store, _partition(task)] = position
    for store, partitions in facts.changelogs.items():
        for partition, rows in enumerate(partitions):
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
            _check_copy(f"{kind} {store} of task {task}", copy, task, store, facts, history)
    for (task, store), copy in facts.stores.items():
        head = max(history.get(task, {0: {}}))
        what = f"store {store} of task {task} is at version {copy.version} after {head} was applied"
        _must(task not in facts.applied or copy.version == head, "I4", what)
    for place, standby in facts.standbys.items():
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
    replayed = _replayed(facts.changelogs[store][_partition(task)][: copy.position])
    _must(dict(copy.rows) == replayed, "I5", f"{what}: {_difference(replayed, copy.rows)}")


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


def _replayed(rows: Iterable[Row]) -> dict[bytes, bytes]:
    store: dict[bytes, bytes] = {}
    for key, value, _ in rows:
        assert key is not None
        if value is None:
            store.pop(key, None)
        else:
            store[key] = value
    return store


def _partition(task: str) -> int:
    return int(task.split("_")[1])


def _must(condition: bool, invariant: str, what: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not condition:
        raise InvariantBroken(f"{invariant}: {what}")


def _difference(expected: Mapping[bytes, bytes], found: Mapping[bytes, bytes]) -> str:
    keys = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    return ", ".join(f"{key!r} is {found.get(key)!r}, not {expected.get(key)!r}" for key in keys[:3])


def _shown(rows: Sequence[Row]) -> str:
    return f"[{', '.join(f'{value!r}@{time}' for _, value, time in rows)}]"
