"""The nine stages on a standalone cluster: each cell of each table. See examples/nine_stages.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from examples.nine_stages import Stage
from tests.engine.stage_checks import check_stages
from tests.spark.cluster_world import STAGES
from tests.spark.lab import Lab

from millstream.engine.assignment.view import AssignedTask

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(os.environ.get("MILLSTREAM_SOAK") != "1", reason="takes a minute"),
]


@pytest.mark.parametrize("engine", ["jobs", "resident"])
def test_every_cell_of_the_nine_stages_on_a_cluster(tmp_path: Path, engine: str) -> None:
    command = [sys.executable, "-m", "tests.spark.cluster_world", str(tmp_path), engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    found = msgspec.json.decode(
        (tmp_path / STAGES).read_bytes(), type=list[tuple[int, str, tuple[AssignedTask, ...]]]
    )
    lab = Lab(tmp_path / "lab", None)
    hosts = [f"127.0.0.{number}" for number in (2, 3, 4, 5)]
    check_stages([Stage(*one) for one in found], lab.log, "app", hosts)
    counts = {key: values[-1] for key, values in lab.by_key("word-counts").items()}
    assert {counts[f"word-{partition}"] for partition in range(4)} == {5}
