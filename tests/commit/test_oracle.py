"""The oracle's own test: it believes the truth, and notices each kind of lie."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.simulation import oracle, oracle_programs
from tests.simulation.fault_world import World
from tests.simulation.oracle import Copy, Facts, Held, InvariantBroken

from millstream.log.partitioner import murmur2


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    with World(tmp_path_factory.mktemp("truth"), "ledger", "memory").create_topics() as world:
        world.append(30)
        world.epoch()
        world.epoch()
        world.follow()
        return world.facts()


def judge(facts: Facts) -> oracle.Verdict:
    return oracle.check(oracle_programs.Ledger(2), facts)


def test_the_truth_is_believed(truth: Facts) -> None:
    verdict = judge(truth)

    assert verdict.epochs == 3
    assert verdict.records > 3
    assert verdict.outputs == 2 * verdict.records


@pytest.mark.parametrize("module", [oracle, oracle_programs])
def test_the_oracle_shares_no_code_with_the_engine(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }

    engine = {name for name in imported if name.startswith("millstream")} - {oracle_programs.__name__}
    assert not engine


@pytest.mark.parametrize(
    "key", [b"", b"k", b"to", b"the", b"mill", b"river", b"customer4", bytes(range(256))]
)
def test_the_oracle_hashes_as_kafka_does(key: bytes) -> None:
    assert oracle_programs.murmur2(key) == murmur2(key) & 0xFFFFFFFF


# Lies -------------------------------------------------------------------------------------------------


def changed(partitions: Any, change: Callable[[list[Any]], None]) -> list[list[Any]]:
    """A topic with one of its partitions changed: the longest."""
    copied = [list(rows) for rows in partitions]
    change(max(copied, key=len))
    return copied


def with_output(change: Callable[[list[Any]], None]) -> Callable[[Facts], Facts]:
    return lambda facts: replace(
        facts, outputs={**facts.outputs, "totals-out": changed(facts.outputs["totals-out"], change)}
    )


def with_changelog(change: Callable[[list[Any]], None]) -> Callable[[Facts], Facts]:
    return lambda facts: replace(
        facts, changelogs={**facts.changelogs, "totals": changed(facts.changelogs["totals"], change)}
    )


def with_store(**changes: Any) -> Callable[[Facts], Facts]:
    def lie(facts: Facts) -> Facts:
        place = ("0_0", "latest")
        return replace(facts, stores={**facts.stores, place: replace(facts.stores[place], **changes)})

    return lie


def with_head(**changes: Any) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, manifests=[*facts.manifests[:-1], {**facts.manifests[-1], **changes}])


def swapped(rows: list[Any]) -> None:
    """Two updates of one key in the wrong order."""
    first = rows[0]
    second = next(number for number, row in enumerate(rows) if row[0] == first[0] and row != first)
    rows[0], rows[second] = rows[second], rows[0]


def in_two_partitions(facts: Facts) -> Facts:
    outputs = [list(rows) for rows in facts.outputs["totals-out"]]
    longest = max(outputs, key=len)
    other = next(rows for rows in outputs if rows is not longest)
    other.append(longest.pop())
    return replace(facts, outputs={**facts.outputs, "totals-out": outputs})


def raised(row: Any) -> Any:
    return (row[0], row[1][:-1] + bytes([row[1][-1] ^ 1]), row[2])


def without_the_last_epoch(rows: list[Any]) -> None:
    del rows[-1]


def not_applied(facts: Facts) -> Facts:
    behind = with_store(version=2, position=facts.manifests[1]["tasks"]["0_0"]["changelogs"]["latest"])(facts)
    rows = facts.changelogs["latest"][0][: behind.stores["0_0", "latest"].position]
    behind = with_store(version=2, position=len(rows), rows={key: value for key, value, _ in rows})(facts)
    return replace(behind, applied={"0_0"})


def without_a_row(held: Held) -> Held:
    return replace(held, rows={offset: row for offset, row in held.rows.items() if offset != held.end - 2})


def without_the_beginning(held: Held) -> Held:
    return Held(1, held.end, {offset: row for offset, row in held.rows.items() if offset})


def without_the_last_of_a_key(held: Held) -> Held:
    return replace(held, rows={offset: row for offset, row in held.rows.items() if offset != held.end - 1})


def another_row(held: Held) -> Held:
    return replace(held, rows={**held.rows, held.end - 1: raised(held.rows[held.end - 1])})


def with_output_now(change: Callable[[Held], Held]) -> Callable[[Facts], Facts]:
    return lambda facts: replace(
        facts,
        outputs_now={**facts.outputs_now, "totals-out": longest(facts.outputs_now["totals-out"], change)},
    )


def with_changelog_now(change: Callable[[Held], Held]) -> Callable[[Facts], Facts]:
    return lambda facts: replace(
        facts,
        changelogs_now={**facts.changelogs_now, "totals": longest(facts.changelogs_now["totals"], change)},
    )


def longest(partitions: Sequence[Held], change: Callable[[Held], Held]) -> list[Held]:
    """A topic as it is now, with its longest partition changed."""
    chosen = max(partitions, key=lambda held: held.end)
    return [change(held) if held is chosen else held for held in partitions]


LIES: dict[str, tuple[str, Callable[[Facts], Facts]]] = {
    "an output is lost": ("I1", with_output(lambda rows: rows.pop())),
    "the first output is lost": ("I1", with_output(lambda rows: rows.pop(0))),
    "an output is there twice": ("I2", with_output(lambda rows: rows.append(rows[-1]))),
    "an output of nobody": ("I2", with_output(lambda rows: rows.append((b"shop9", b"", 1)))),
    "outputs in the wrong order": ("I3", with_output(swapped)),
    "a key in two partitions": ("I3", in_two_partitions),
    "another output": ("I1", with_output(lambda rows: rows.append(raised(rows.pop())))),
    "another changelog": ("I4", with_changelog(lambda rows: rows.append(raised(rows.pop())))),
    "a changelog that ends too soon": ("I1", with_changelog(without_the_last_epoch)),
    "a changelog that goes on": ("I8", with_changelog(lambda rows: rows.append(rows[-1]))),
    "a store with other rows": ("I5", with_store(rows={b"customer0": b"shop0:1"})),
    "a store above the head": ("I7", with_store(version=9)),
    "a store that is at another offset than its version": ("I7", with_store(position=0)),
    "a store whose marker was not advanced": ("I4", not_applied),
    "a store on its way with a row of nobody": ("I5", with_store(version=-1, rows={b"customer0": b"shop9"})),
    "a store on its way without the rows of its offset": ("I5", with_store(version=-1, rows={})),
    "a store on its way to nowhere": ("I7", with_store(version=-1, toward=99)),
    "a standby with other rows": (
        "I5",
        lambda facts: replace(facts, standbys={("0_0", "latest"): Copy(0, 0, {b"a": b"b"})}),
    ),
    "positions that go back": ("I7", with_head(positions=[])),
    "positions above the input": ("I7", with_head(positions=[["orders", 0, 999], ["orders", 1, 999]])),
    "another parent": ("I7", with_head(parent="somebody")),
    "an earlier term": ("I7", with_head(term=0)),
    "an epoch left out": ("I7", lambda facts: replace(facts, manifests=facts.manifests[1:])),
    "a task that is forgotten": ("I7", with_head(tasks={}, sealed=[])),
    "a sealed file that is not there": ("I7", lambda facts: replace(facts, sealed={})),
    "a sealed file that is another": (
        "I7",
        lambda facts: replace(facts, sealed=dict.fromkeys(facts.sealed, b"another")),
    ),
    "a topic that shows what nobody named": (
        "I8",
        lambda facts: replace(facts, referenced={*facts.referenced, "sealed/app/3/0_0.s0-t1-a99"}),
    ),
    "a record of an output that has become another": ("I2", with_output_now(another_row)),
    "a record of an output that is gone": ("I1", with_output_now(without_a_row)),
    "an output that begins too late": ("I1", with_output_now(without_the_beginning)),
    "a changelog that has too little for a commit": ("I4", with_changelog_now(without_the_last_of_a_key)),
    "a manifest that is gone": ("I7", lambda facts: replace(facts, kept={1, 3})),
    "fewer manifests than must be kept": ("I7", with_head(oldest=3)),
    "less input than was written": (
        "I7",
        lambda facts: replace(facts, inputs={"orders": [[], []]}),
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_noticed(truth: Facts, lie: str) -> None:
    invariant, tell = LIES[lie]

    with pytest.raises(InvariantBroken) as caught:
        judge(tell(truth))

    assert str(caught.value).startswith(f"{invariant}: ")


def test_a_standby_is_compared_with_the_active_store_byte_by_byte(truth: Facts) -> None:
    unlogged = ("0_0", "visits")
    active = truth.stores[unlogged]
    other = replace(truth, standbys={unlogged: replace(active, rows={b"customer0": bytes(8)})})

    with pytest.raises(InvariantBroken) as caught:
        judge(other)

    assert str(caught.value).startswith("I6: ")


def test_the_last_epoch_of_a_dead_coordinator_may_be_missing_from_topics(truth: Facts) -> None:
    program = oracle_programs.Ledger(2)
    *_, last = [program.epoch(cut) for cut in cuts(truth)]
    assert last["totals-out"]
    before = {
        topic: [[row for row in rows if row not in last[topic]] for rows in partitions]
        for topic, partitions in truth.outputs.items()
    }

    truth = replace(truth, outputs_now={})

    judge(replace(truth, outputs=before, settled=False))
    with pytest.raises(InvariantBroken) as caught:
        judge(replace(truth, outputs=before, settled=True))

    assert str(caught.value).startswith("I1: ")


def cuts(facts: Facts) -> list[dict[str, list[Any]]]:
    """The input of each epoch."""
    before = [0, 0]
    found: list[dict[str, list[Any]]] = []
    for manifest in facts.manifests:
        ends = [0, 0]
        for _, partition, offset in manifest["positions"]:
            ends[partition] = offset
        found.append({"orders": [facts.inputs["orders"][p][before[p] : ends[p]] for p in range(2)]})
        before = ends
    return found
