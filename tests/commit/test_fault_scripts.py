"""Random faults in random order, each script from one seed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.testing.faults import play, script, seeds

COUNT = 20_000 if os.environ.get("MILLSTREAM_SOAK") else 300


@pytest.mark.parametrize("seed", seeds(COUNT))
def test_after_any_faults_the_application_is_the_fold_of_its_input(tmp_path: Path, seed: int) -> None:
    played = script(seed)
    print(played)

    verdict = play(played, tmp_path)

    assert verdict.records > 0
    assert verdict.outputs > 0
