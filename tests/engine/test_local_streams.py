"""`Streams(engine="local")`: the whole application in this process, without Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream import Streams, StreamsBuilder, StreamsConfig, Topology, serdes
from millstream.errors import ConfigError
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.state.backends.folder import whole_folder
from millstream.types import Partition

WORDS = TopicPartition("words", Partition(0))


def word_count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", value=serdes.string)
    words.group_by(lambda _, word: word).count(store="counts").to_stream().to("word-counts")
    return builder.build()


def append(folder: Path, *words: str) -> None:
    log = FileLog(folder / "log")
    if not (folder / "log").exists():
        log.create_topic(WORDS.topic)
    values = [word.encode() for word in words]
    log.append(WORDS, record_batch([None] * len(values), values, list(range(len(values)))))


def app_in(folder: Path, **settings: object) -> Streams:
    config = StreamsConfig(state_dir=folder / "state", **settings)  # type: ignore[arg-type]
    return Streams(word_count(), app_id="app", log=folder / "log", engine="local", config=config)


def test_it_counts_goes_on_after_a_restart_and_shows_its_store(tmp_path: Path) -> None:
    append(tmp_path, "to", "the", "river")
    with app_in(tmp_path) as app:
        app.run(until="caught-up")
        assert app.store("counts").get("river") == 1

    append(tmp_path, "the", "river")
    with app_in(tmp_path) as app:
        app.run(until="caught-up")
        assert dict(app.store("counts").all()) == {"to": 1, "the": 2, "river": 2}
        assert app.metrics()["state_entries"] == 3


def test_an_answer_may_be_as_stale_as_it_is_allowed_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, "to", "the", "river")
    with app_in(tmp_path) as app:
        app.run(until="caught-up")
        counts, bounded = app.store("counts"), app.store("counts", max_staleness_ms=60_000)
        assert app.store("counts", max_staleness_ms=60_000) is bounded
        assert (counts.get("river"), bounded.get("river")) == (1, 1)
        append(tmp_path, "river")
        app.run(until="caught-up")
        assert (counts.get("river"), bounded.get("river")) == (2, 1)
        assert bounded.version < counts.version
        later = time.monotonic() + 60
        monkeypatch.setattr("millstream.query.replica.time.monotonic", lambda: later)
        assert (bounded.get("river"), bounded.version) == (2, counts.version)
        with pytest.raises(ConfigError, match="max_staleness_ms=-1"):
            app.store("counts", max_staleness_ms=-1)


def test_snapshots_are_taken_beside_its_epochs(tmp_path: Path) -> None:
    snapshots = tmp_path / "snapshots"
    append(tmp_path, "to", "the", "river")
    with app_in(tmp_path, snapshot_uri=str(snapshots), snapshot_interval_epochs=1) as app:
        app.run(until="caught-up")

    assert [path.name for path in sorted(snapshots.rglob("manifests/*"))] != []


@pytest.fixture
def slow_copies(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Copying a store for a snapshot takes a while; tells when one has begun."""
    begun = threading.Event()

    @contextmanager
    def slow(path: Path) -> Iterator[Path]:
        begun.set()
        time.sleep(0.2)
        with whole_folder(path) as partial:
            yield partial

    monkeypatch.setattr("millstream.state.backends.base.whole_folder", slow)
    return begun


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_an_epoch_waits_while_a_snapshot_copies_the_stores_in_its_process(
    tmp_path: Path, backend: str, slow_copies: threading.Event
) -> None:
    settings: dict[str, object] = {"snapshot_uri": str(tmp_path / "snapshots"), "snapshot_interval_epochs": 1}
    append(tmp_path, "to", "the", "river", "to", "the", "sea")
    with app_in(tmp_path, backend=backend, max_records_per_epoch=1, **settings) as app:
        app.run(until="caught-up")
        more = 0
        while not slow_copies.is_set() and more < 1_000:  # it begins beside the epochs
            append(tmp_path, "sea")
            more += 1
            app.run(until="caught-up")
        assert slow_copies.is_set()
        counts = {"to": 2, "the": 2, "river": 1, "sea": 1 + more}
        assert dict(app.store("counts").all()) == counts

    shutil.rmtree(tmp_path / "state")
    with app_in(tmp_path, backend=backend, **settings) as app:
        app.run(until="caught-up")
        assert dict(app.store("counts").all()) == counts


def test_an_application_is_opened_again_while_a_snapshot_of_its_last_life_copies_the_stores(
    tmp_path: Path, slow_copies: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.engine.snapshots._PATIENCE_S", 0.001)  # it is left behind
    settings: dict[str, object] = {"snapshot_uri": str(tmp_path / "snapshots"), "snapshot_interval_epochs": 1}
    append(tmp_path, "to", "the")
    with app_in(tmp_path, **settings) as app:
        app.run(until="caught-up")
        assert slow_copies.wait(60)

    append(tmp_path, "the")
    with app_in(tmp_path, **settings) as app:
        app.run(until="caught-up")
        assert dict(app.store("counts").all()) == {"to": 1, "the": 2}


def test_nothing_of_spark_is_started(tmp_path: Path) -> None:
    append(tmp_path, "to", "the", "river")
    program = f"""
import os
os.environ.update(JAVA_HOME="/nowhere", PATH="")
from pathlib import Path
from tests.engine.test_local_streams import app_in
with app_in(Path({str(tmp_path)!r})) as app:
    app.run(until="caught-up")
    print(app.store("counts").get("the"))
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env={"PYTHONPATH": f"{root / 'src'}:{root}"},
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout == "1\n"


def test_making_an_application_makes_nothing_on_disk(tmp_path: Path) -> None:
    app_in(tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("engine", "spark", "remedy"),
    [
        ("locl", None, "Remedy: use one of 'jobs', 'resident', 'local'"),
        ("local", object(), "Remedy: leave spark= out, or use engine='jobs' or engine='resident'."),
    ],
)
def test_an_engine_that_is_none_is_refused(tmp_path: Path, engine: str, spark: object, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Streams(word_count(), app_id="app", log=tmp_path, engine=engine, spark=spark)  # type: ignore[arg-type]

    assert remedy in str(caught.value)


def test_an_engine_in_the_config_is_one(tmp_path: Path) -> None:
    config = StreamsConfig(engine="local", state_dir=tmp_path / "state")
    append(tmp_path, "to", "the", "river")
    with Streams(word_count(), app_id="app", log=tmp_path / "log", config=config) as app:
        app.run(until="caught-up")

        assert app.store("counts").get("river") == 1
