"""The setting `state_dir` for hosts that keep their state in different places."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from millstream import Streams, StreamsBuilder, StreamsConfig
from millstream.errors import ConfigError
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.local.directory import open_state_directory
from millstream.state_dir import absolute_state_dir, state_dir_here, state_dir_if_known
from millstream.types import Partition


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/var/state", "/var/state"),
        ("/var/state-{host}", "/var/state-river.example"),
        ("{env:DISK}", "/mnt/nvme"),
        ("{env:DISK}/a/{host}/{env:RACK}", "/mnt/nvme/a/river.example/7"),
        ("relative", "relative"),
    ],
)
def test_each_host_makes_its_own_folder_of_it(given: str, expected: str) -> None:
    found = state_dir_here(Path(given), {"DISK": "/mnt/nvme", "RACK": "7"}, "river.example")
    assert found == Path(expected)


@pytest.mark.parametrize(
    "given",
    ["/a/{user}", "/a/{", "/a}", "/{env:}", "/{env:1X}", "/{env:A B}", "/{{host}}", "/{host", "/{HOST}"],
)
def test_braces_that_mean_nothing_are_refused_at_once(given: str) -> None:
    with pytest.raises(ConfigError, match=r"braces that mean nothing.*Remedy: write \{host\}"):
        StreamsConfig(state_dir=Path(given))


@pytest.mark.parametrize("environment", [{}, {"DISK": ""}])
def test_a_variable_that_a_host_does_not_have_is_told_with_the_host(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"on host mill has no DISK\..*spark\.executorEnv\.DISK"):
        state_dir_here(Path("{env:DISK}/state"), environment, "mill")


def test_a_variable_that_is_no_absolute_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="not an absolute path"):
        state_dir_here(Path("{env:DISK}/state"), {"DISK": "disk"}, "mill")


@pytest.mark.parametrize("host", ["", "..", "a/b", "-x", "a..b", "a\nb"])
def test_a_host_whose_name_can_t_be_a_part_of_a_path_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="can't be a part of a path"):
        state_dir_here(Path("/state/{host}"), {}, host)


def test_it_is_made_absolute_where_it_is_set_and_filled_in_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_state_dir(Path("state/{host}")) == tmp_path / "state" / "{host}"
    assert absolute_state_dir(Path("{env:DISK}/state")) == Path("{env:DISK}/state")


def test_a_coordinator_does_not_need_to_know_the_folder(tmp_path: Path) -> None:
    """It has no task: the variable is for the hosts that have."""
    config = StreamsConfig(state_dir=Path("{env:NO_SUCH_VARIABLE}/state"))
    assert state_dir_if_known(config.state_dir) is None
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    app = Streams(builder.build(), app_id="app", log=tmp_path / "log", config=config)
    assert app.metrics()["restores"] == {}
    with pytest.raises(ConfigError, match="has no NO_SUCH_VARIABLE"):
        app.cleanup()


def test_an_application_keeps_its_state_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DISK", str(tmp_path / "disk"))
    log = FileLog(tmp_path / "log")
    log.create_topic("in", TopicConfig(partitions=1))
    log.append(TopicPartition("in", Partition(0)), record_batch([b"k"], [b"v"], [0]))
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts")
    config = StreamsConfig(state_dir=Path("{env:STATE_DISK}/state"), engine="local")
    with Streams(builder.build(), app_id="app", log=tmp_path / "log", config=config) as app:
        app.run(until="caught-up")
    assert (tmp_path / "disk" / "state" / ".instance").is_file()
    app.cleanup()
    assert not (tmp_path / "disk" / "state" / "app").exists()


def _instance(path: str) -> str:
    return open_state_directory(state_dir_here(Path(path))).instance_id


def test_two_executors_of_a_host_are_one_instance(tmp_path: Path) -> None:
    """They share the folder, and a task in it has one lock."""
    given = f"{tmp_path}/state-{{host}}"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert len(set(pool.map(_instance, [given] * 4))) == 1
