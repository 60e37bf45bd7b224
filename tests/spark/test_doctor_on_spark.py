"""``millstream doctor --spark``: a Spark of its own is started, asked and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.spark.conftest import ROOT


def test_the_doctor_starts_a_spark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "doctor", "--spark", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *_, spark = map(json.loads, done.stdout.splitlines())
    assert (spark["check"], spark["verdict"]) == ("spark", "ok")
    assert "a job with sum 12" in spark["found"]
