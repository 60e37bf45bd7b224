"""One Spark for all tests of a process, and a folder of topics for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from tests.spark.lab import Lab

from millstream.engine.spark.session import is_alive, make_context

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def import_path() -> Iterator[None]:
    """Spark's workers and child processes can import what the tests can."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), before]))
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def spark(import_path: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkContext]:
    settings = {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-Dmillstream.test=1",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
    }
    context = make_context("tests", settings)
    yield context
    if is_alive(context):
        context.stop()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private folder for all tests of a process."""
    return tmp_path_factory.mktemp("labs")


@pytest.fixture
def lab(tmp_path: Path, spark: SparkContext) -> Lab:
    """Topics and state of its own, on the shared Spark."""
    return Lab(tmp_path, spark)


@pytest.fixture
def bare_lab(tmp_path: Path) -> Lab:
    """The same for applications that run in child processes, with a Spark of their own."""
    return Lab(tmp_path, None)
