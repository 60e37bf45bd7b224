"""A case through Kafka and through all variants of ours, and the report on what differs."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle_fuzz.kafka import Kafka
from tests.oracle_fuzz.results import Results
from tests.oracle_fuzz.shrink import shrink
from tests.oracle_fuzz.spec import Case, described
from tests.oracle_fuzz.variants import BY_NAME, VARIANTS, differs, played


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a case."""

    case: Case
    wrong: str | None = None
    """The name of the variant that differs."""
    runs: int = 0
    refused: bool = False
    """Kafka refuses the topology, and so do we."""


class _Asked:
    """Kafka's answers, each asked for once."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._answers: dict[str, Results] = {}

    def __call__(self, case: Case) -> Results:
        text = case.to_json()
        if text not in self._answers:
            self._answers[text] = self._kafka.play(case)
        return self._answers[text]


def check(case: Case, kafka: Kafka) -> Checked:
    """Play a case in all variants, up to the first that differs."""
    asked = _Asked(kafka)
    for number, variant in enumerate(VARIANTS, 1):
        if differs(case, variant, asked) is not None:
            return Checked(case, variant.name, number)
    refused = asked(played(case, VARIANTS[0])).refused is not None
    return Checked(case, None, len(VARIANTS), refused)


def report(checked: Checked, kafka: Kafka, seed: int | None, seconds: float = 60) -> str:
    """The smallest case that is found, what differs, and how to play it again."""
    assert checked.wrong is not None
    variant = BY_NAME[checked.wrong]
    kind = _kind(differs(checked.case, variant, kafka.play))
    small = shrink(checked.case, lambda case: _kind(_differs(case, checked, kafka)) == kind, seconds)
    again = "" if seed is None else f"again: make fuzz-oracle N=1 SEED={seed}\n"
    return (
        f"== seed {seed}, variant: {variant.name}\n{again}"
        f"the smallest case that was found, as played:\n{described(played(small, variant))}\n"
        f"{_differs(small, checked, kafka)}\n"
        f"to play it (in a file, with --case FILE): {small.to_json()}\n"
    )


def _differs(case: Case, checked: Checked, kafka: Kafka) -> str | None:
    assert checked.wrong is not None
    try:
        return differs(case, BY_NAME[checked.wrong], kafka.play)
    except RuntimeError:  # a smaller case may be none that Kafka can play
        return None


def _kind(found: str | None) -> str | None:
    """What differs, without numbers: a smaller case has to be wrong in the same way."""
    return found and "".join(letter for letter in found.split("\n", 1)[0] if not letter.isdigit())
