"""Random topologies with a foreign-key join: after each epoch its rows are those of both tables, joined.

A failure prints its seed, a command that replays it, and a smaller example.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.properties.check import outcome, report_on
from tests.properties.conftest import FIRST_SEED, TOPOLOGIES
from tests.properties.foreign_keys import drawn_join, foreign_keys_hold
from tests.properties.generate import random_spec
from tests.properties.inputs import random_epochs

from millstream.processors.joins.foreign_key import messages, resolver
from millstream.processors.joins.foreign_key.responder import SubscriptionResponder

TEST_FILE = "tests/properties/test_foreign_keys.py"
SEEDS = range(FIRST_SEED, FIRST_SEED + TOPOLOGIES)


def test_rows_of_seed(seed: int) -> None:
    report = report_on(seed, random_spec(seed), (foreign_keys_hold,), TEST_FILE)
    if report is not None:
        pytest.fail(report, pytrace=False)


def test_many_topologies_have_tables_to_join_in_all_ways() -> None:
    drawn = [join for seed in SEEDS if (join := drawn_join(random_spec(seed))) is not None]
    assert len(drawn) > TOPOLOGIES / 3
    assert {(join.kind, join.joined_back) for join in drawn} == {
        (kind, back) for kind in ("foreign_key_join", "left_foreign_key_join") for back in (True, False)
    }


def stale_answers_count(patch: pytest.MonkeyPatch) -> None:
    split = messages.split_answer

    def never_stale(answer: bytes) -> tuple[Any, bytes | None]:
        return _Equal(), split(answer)[1]

    patch.setattr(resolver, "split_answer", never_stale)


class _Equal:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def changes_of_the_right_table_are_not_told(patch: pytest.MonkeyPatch) -> None:
    process = SubscriptionResponder.process
    patch.setattr(SubscriptionResponder, "process", lambda self, batch: process(self, _of_left(batch)))


def _of_left(batch: Any) -> Any:
    return batch.take([row for row, port in enumerate(batch.ports) if port == 0])


@pytest.mark.parametrize("plant", [stale_answers_count, changes_of_the_right_table_are_not_told])
def test_planted_bug_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = (outcome(foreign_keys_hold, spec, random_epochs(spec)) for spec in map(random_spec, SEEDS))
    first = next((one for one in found if one is not None), None)
    assert first is not None
    assert first.startswith("differing rows")
