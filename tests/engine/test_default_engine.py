"""Which engine runs an application that names none."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark import SparkContext
from tests.spark.programs import one_level

from millstream import Streams, StreamsConfig

GIVEN = Mock(spec=SparkContext)
STANDBYS = {"num_standby_replicas": 1}


@pytest.mark.parametrize(
    ("spark", "settings", "expected"),
    [
        (None, {}, "ResidentSparkEngine"),
        (None, {"engine": "jobs"}, "SparkEngine"),
        (None, {"engine": "local"}, "LocalEngine"),
        (GIVEN, {}, "SparkEngine"),
        (GIVEN, STANDBYS, "SparkEngine"),
        (GIVEN, {"engine": "resident"}, "ResidentSparkEngine"),
    ],
)
def test_cores_of_a_given_session_are_held_only_if_asked_for(
    tmp_path: Path, spark: Any, settings: dict[str, Any], expected: str
) -> None:
    config = StreamsConfig(state_dir=tmp_path / "state", **settings)
    app = Streams(one_level(), app_id="app", log=tmp_path / "log", spark=spark, config=config)
    assert type(app._loop.engine).__name__ == expected
