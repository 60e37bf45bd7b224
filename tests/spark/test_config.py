"""`StreamsConfig` from keyword arguments, the environment and TOML: validated, and mistakes are named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream import StreamsConfig, handlers, timestamps
from millstream.errors import ConfigError


def test_the_environment_gives_settings_of_every_kind() -> None:
    config = StreamsConfig.from_env(
        {
            "MILLSTREAM_MAX_RECORDS_PER_EPOCH": "500",
            "MILLSTREAM_STATE_DIR": "/var/lib/millstream",
            "MILLSTREAM_MAX_BYTES_PER_EPOCH": "1000000",
            "MILLSTREAM_OFFSET_RESET": "latest",
            "MILLSTREAM_MAX_TASK_IDLE_MS": "-1",
            "MILLSTREAM_LATE_RECORD_HANDLER": "dead_letter",
            "MILLSTREAM_BACKEND": "rocksdb",
            "MILLSTREAM_ROCKSDB_CONFIG_SETTER": "shop.tuning.set_config",
            "MILLSTREAM_SNAPSHOT_URI": "s3://bucket/snapshots",
            "MILLSTREAM_SNAPSHOT_INTERVAL_EPOCHS": "50",
            "MILLSTREAM_SNAPSHOT_INTERVAL_BYTES": "1000000",
            "MILLSTREAM_SNAPSHOTS_RETAINED": "3",
            "MILLSTREAM_PROCESSING_HANDLER": "dead_letter",
            "MILLSTREAM_DEAD_LETTER_TOPIC": "bad",
            "MILLSTREAM_TIMESTAMP_EXTRACTOR": "wall_clock_timestamp",
            "MILLSTREAM_SPARK_SETTINGS": '{"spark.executor.memory" = "2g"}',
            "MILLSTREAM_FAILPOINTS": "commit.leased=kill",
            "HOME": "/root",
        }
    )
    assert config == StreamsConfig(
        max_records_per_epoch=500,
        max_bytes_per_epoch=1_000_000,
        state_dir=Path("/var/lib/millstream"),
        offset_reset="latest",
        max_task_idle_ms=-1,
        late_record_handler=handlers.dead_letter,
        backend="rocksdb",
        rocksdb_config_setter="shop.tuning.set_config",
        snapshot_uri="s3://bucket/snapshots",
        snapshot_interval_epochs=50,
        snapshot_interval_bytes=1_000_000,
        snapshots_retained=3,
        processing_handler=handlers.dead_letter,
        dead_letter_topic="bad",
        timestamp_extractor=timestamps.wall_clock_timestamp,
        spark_settings={"spark.executor.memory": "2g"},
    )


def test_the_environment_of_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_TICK_MS", "77")
    assert StreamsConfig.from_env().tick_ms == 77


@pytest.mark.parametrize("table", ["", "[millstream]\n"])
def test_toml_gives_settings_alone_or_in_a_table_of_its_own(tmp_path: Path, table: str) -> None:
    file = tmp_path / "app.toml"
    spark = "[millstream.spark_settings]" if table else "[spark_settings]"
    file.write_text(f'{table}tick_ms = 250\nprocessing_handler = "skip"\n{spark}\n"spark.cores.max" = 4\n')
    assert StreamsConfig.from_toml(file) == StreamsConfig(
        tick_ms=250, processing_handler=handlers.skip, spark_settings={"spark.cores.max": "4"}
    )


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"MILLSTREAM_TIK_MS": "5"},
            "the environment has a setting 'tik_ms', which is unknown. Did you mean 'tick_ms'?",
        ),
        ({"MILLSTREAM_TICK_MS": "often"}, "tick_ms is 'often', but it must be a whole number of at least 1"),
        ({"MILLSTREAM_TICK_MS": "0"}, "tick_ms is 0, but it must be a whole number of at least 1"),
        (
            {"MILLSTREAM_OFFSET_RESET": "first"},
            "offset_reset is 'first'. Remedy: use 'earliest', 'latest', a",
        ),
        (
            {"MILLSTREAM_OFFSET_RESET": "2026-13-01"},
            "MILLSTREAM_OFFSET_RESET is '2026-13-01', which is no time",
        ),
        (
            {"MILLSTREAM_OFFSET_RESET": "2026-01-01"},
            "Remedy: use 'earliest', 'latest', a time (milliseconds, or",
        ),
        (
            {"MILLSTREAM_MAX_BYTES_PER_EPOCH": "0"},
            "max_bytes_per_epoch is 0, but it must be a whole number of at least 1",
        ),
        (
            {"MILLSTREAM_PRODUCTION_HANDLER": "shrug"},
            "the environment: production_handler is 'shrug'. Remedy: use one of dead_letter, fail, skip",
        ),
        (
            {"MILLSTREAM_SPARK_SETTINGS": "a=b=c"},
            "MILLSTREAM_SPARK_SETTINGS is 'a=b=c', which is no table of TOML",
        ),
        ({"MILLSTREAM_SPARK_SETTINGS": "7"}, "the environment: spark_settings is 7, but it must be a table"),
    ],
)
def test_a_mistake_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        StreamsConfig.from_env(environment)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("86400000", 86_400_000), ("1970-01-02T02:00:00+02:00", datetime(1970, 1, 2, tzinfo=UTC))],
)
def test_a_time_to_begin_at_comes_from_the_environment_and_from_toml(
    tmp_path: Path, text: str, expected: int | datetime
) -> None:
    file = tmp_path / "app.toml"
    file.write_text(f"offset_reset = {text}\nmax_bytes_per_epoch = 5_000")
    assert StreamsConfig.from_toml(file) == StreamsConfig(offset_reset=expected, max_bytes_per_epoch=5_000)
    assert StreamsConfig.from_env({"MILLSTREAM_OFFSET_RESET": text}) == StreamsConfig(offset_reset=expected)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml can't be read as TOML"):
        StreamsConfig.from_toml(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_task_idle_ms": -2}, "max_task_idle_ms is -2, but it must be a whole number of at least -1"),
        ({"max_restarts": -1}, "max_restarts is -1, but it must be a whole number of at least 0"),
        ({"lease_ttl_ms": True}, "lease_ttl_ms is True, but it must be a whole number of at least 1"),
        ({"processing_handler": handlers.dead_letter}, "there is no dead_letter_topic. Remedy: set one"),
        ({"offset_reset": timedelta(seconds=-1)}, "or a timedelta before now"),
        ({"offset_reset": True}, "offset_reset is True. Remedy: use 'earliest', 'latest'"),
        ({"snapshots_retained": 0}, "snapshots_retained is 0, but it must be a whole number of at least 1"),
        ({"snapshot_interval_epochs": 0}, "snapshot_interval_epochs is 0, but it must be a whole number"),
        ({"snapshot_interval_bytes": 0}, "snapshot_interval_bytes is 0, but it must be a whole number"),
        ({"snapshot_uri": ""}, "snapshot_uri is a str, or empty. Remedy: give a folder, an URI such as"),
        ({"snapshot_uri": 7}, "snapshot_uri is a int, or empty. Remedy: give a folder, an URI such as"),
        ({"deserialization_handler": "skip"}, "Remedy: use one of millstream.handlers"),
    ],
)
def test_what_contradicts_itself_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        StreamsConfig(**settings)
    assert message in str(refusal.value)
