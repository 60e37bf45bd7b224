"""A store is read only by serdes that can read it: the manifest says with which it was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.commit.table_app import TableApp
from tests.commit.table_app import topology as table
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import (
    EmitStrategy,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    Window,
    serdes,
    stores,
)
from millstream.commit import coordinator as commit
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.plan_changes import PlanChangedError
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.query.replica import StoreReplica, WindowReplica
from millstream.record import MAX_TIME
from millstream.state.backends import memory
from millstream.topology.plan import Plan
from millstream.topology.stored_types import StoredTypes, stored_types
from millstream.types import Partition

PLACE = TopicPartition("in", Partition(0))
ON_CLOSE, ON_UPDATE = EmitStrategy.on_window_close(), EmitStrategy.on_window_update()
TUMBLING = "time windows of 10 ms that advance by 10 ms"
HOPPING = "time windows of 10 ms that advance by 5 ms"
GRACE = ", emitted on close with a grace of "


@dataclass(frozen=True)
class Total:
    amount: int


@dataclass(frozen=True)
class TotalAndNote:
    amount: int
    note: str = "none"


@dataclass(frozen=True)
class TotalAndPlace:
    amount: int
    place: str
    note: str = "none"


class Decimals(serdes.BaseSerde[int]):
    """A user's own: numbers as text."""

    def serialize(self, value: int, /) -> bytes:
        return str(value).encode()

    def deserialize(self, data: bytes, /) -> int:
        return int(data)


class DecimalsWithAComma(Decimals):
    version = 2


def counted() -> Topology:
    return program(lambda grouped: grouped.count(store="c"))


def aggregated(value: Any, initial: Any = 0, step: Callable[..., Any] | None = None) -> Topology:
    def add(_: Any, __: Any, total: Any) -> Any:
        return total + 1

    return program(lambda grouped: grouped.aggregate(lambda: initial, step or add, store="c", value=value))


def program(aggregation: Callable[[Any], Any], *, key: Any = serdes.string) -> Topology:
    builder = StreamsBuilder()
    aggregation(builder.stream("in", key=key, value=serdes.string).group_by_key())
    return builder.build()


def windowed(windows: Any, emit: EmitStrategy = ON_UPDATE) -> Topology:
    return program(lambda grouped: grouped.windowed_by(windows).emit_strategy(emit).count(store="c"))


def moved(key: Any, value: Any = serdes.string, *, stateful: bool = True) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    through = stream.repartition(name="moved", key=key, value=value)
    if stateful:
        builder.add_state_store(stores.key_value("c", key=serdes.string, value=serdes.string))
        through.process(Idle, "c", name="idle")
    else:
        through.to("out")
    return builder.build()


class Idle(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        del record


class App:
    """An application that is started with one program after another."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700)
        self.root = root
        self.files = FastFiles()
        self.now = 0
        self.log().create_topic("in", TopicConfig())

    def log(self) -> FileLog:
        return FileLog(self.root / "log", files=self.files)

    def run(self, topology: Topology, *, records: int = 1) -> Manifest:
        memory._kept.clear()
        self.now += 3_600_000
        if records:
            self.log().append(PLACE, record_batch([b"a"] * records, [b"v"] * records, [0] * records))
        with InProcessExecutor(
            topology,
            application_id="app",
            log_root=self.root / "log",
            state_dir=self.root / "state",
            backend="memory",
            clock=lambda: self.now,
            files=self.files,
        ) as executor:
            executor.run_until_caught_up()
            return executor.coordinator.head

    def refusal(self, topology: Topology) -> str:
        """What a program is told, after which the application is as it was."""
        before = self.manifests(), self.log().topics()
        with pytest.raises(PlanChangedError) as caught:
            self.run(topology, records=0)
        assert (self.manifests(), self.log().topics()) == before
        return str(caught.value)

    def manifests(self) -> list[str]:
        return sorted(path.name for path in (self.root / "log/applications/app/manifests").iterdir())

    def replica(self, topology: Topology) -> StoreReplica:
        return StoreReplica(self.folder(), self.log(), topology.plan(), "c")

    def windows(self, topology: Topology) -> WindowReplica:
        return WindowReplica(self.folder(), self.log(), topology.plan(), "c")

    def folder(self) -> ApplicationStorage:
        return ApplicationStorage(self.root / "log", "app", self.files)

    def chain(self) -> ManifestChain:
        return ManifestChain(ApplicationStorage(self.root / "log", "app", self.files))


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(tmp_path / "app")


def test_a_count_is_not_read_as_text(app: App) -> None:
    app.run(counted())

    message = app.refusal(aggregated(serdes.string, "", lambda _, value, text: text + value))

    assert message == (
        "Application 'app' has state that was written with other serdes than this program has. Since epoch 2 "
        "these have changed:\n"
        "  store 'c': its values were of serdes.int64 and are of serdes.string now\n"
        "Nothing was touched: the bytes carry no type, and would be read as something that nobody wrote. "
        "Likely cause: another serde (key=, value=), schema or aggregation for a store of the same name. "
        "Remedy: go back to the old serde; or leave the old store in the program and give the new one "
        "another name (store=...); or reset the application: start it under another app_id, without state."
    )
    app.run(counted())
    assert dict(app.replica(counted()).all()) == {"a": 2}


@pytest.mark.parametrize("value", [serdes.double, serdes.int32, serdes.json, serdes.nullable(serdes.int64)])
def test_a_count_is_not_read_as_something_else(app: App, value: Any) -> None:
    app.run(counted())
    assert f"store 'c': its values were of serdes.int64 and are of {value} now" in app.refusal(
        aggregated(value)
    )


def test_keys_of_another_serde_would_not_be_found(app: App) -> None:
    app.run(counted())
    message = app.refusal(program(lambda grouped: grouped.count(store="c"), key=serdes.bytes))
    assert "store 'c': its keys were of serdes.string and are of serdes.bytes now" in message


@pytest.mark.parametrize(
    ("old", "new", "was", "now"),
    [
        (
            lambda value: stores.window("s", value=value, window_size_ms=10, retention_ms=100),
            lambda value: stores.session("s", value=value, retention_ms=100),
            "window",
            "session",
        ),
        (
            lambda value: stores.key_value("s", value=value),
            lambda value: stores.list_value("s", value=value),
            "key-value",
            "list-valued",
        ),
        (
            lambda value: stores.versioned_key_value("s", value=value, history_retention_ms=100),
            lambda value: stores.time_ordered_buffer("s", value=value),
            "versioned key-value",
            "time-ordered buffer",
        ),
    ],
)
def test_a_store_of_any_kind_keeps_its_kind_and_its_types(
    app: App, old: Callable[[Any], Any], new: Callable[[Any], Any], was: str, now: str
) -> None:
    def with_store(store: Any) -> Topology:
        builder = StreamsBuilder()
        builder.add_state_store(store)
        builder.stream("in", key=serdes.string).process(Idle, "s", name="idle")
        return builder.build()

    app.run(with_store(old(serdes.int64)))
    app.run(with_store(old(serdes.int64)))
    assert f"store 's' was a {was} store and is a {now} store now" in app.refusal(
        with_store(new(serdes.int64))
    )
    expected = "store 's': its values were of serdes.int64 and are of serdes.string now"
    assert expected in app.refusal(with_store(old(serdes.string)))


@pytest.mark.parametrize(
    ("old", "new", "was", "now"),
    [
        (TimeWindows(10), TimeWindows(20), 10, 20),
        (TimeWindows(10), SlidingWindows(20), 10, 20),
        (SlidingWindows(20), UnlimitedWindows(), 20, MAX_TIME),
    ],
)
def test_windows_keep_their_size(app: App, old: Any, new: Any, was: int, now: int) -> None:
    app.run(windowed(old))
    app.run(windowed(old))
    assert f"store 'c': its windows were {was} ms long and are {now} ms long now" in app.refusal(
        windowed(new)
    )


@pytest.mark.parametrize(
    ("old", "new", "was", "now"),
    [
        (TimeWindows(10), SlidingWindows(10), TUMBLING, "sliding windows of 10 ms"),
        (SlidingWindows(10), TimeWindows(10), "sliding windows of 10 ms", TUMBLING),
        (TimeWindows(10, advance=5), TimeWindows(10), HOPPING, TUMBLING),
        (TimeWindows(10), TimeWindows(10, advance=5), TUMBLING, HOPPING),
        (
            UnlimitedWindows(),
            UnlimitedWindows(start=5),
            "an unlimited window from 0 ms on",
            "an unlimited window from 5 ms on",
        ),
    ],
)
def test_windows_of_the_same_size_stay_the_windows_they_are(
    app: App, old: Any, new: Any, was: str, now: str
) -> None:
    app.run(windowed(old))
    app.run(windowed(old))
    message = app.refusal(windowed(new))
    assert message == (
        "Application 'app' has state of other windows than this program has. Since epoch 4 these have "
        f"changed:\n  store 'c': its windows were {was}, and are {now} now\n"
        "Nothing was touched: rows of the old windows would be taken for rows of the new ones, and windows "
        "that are open now would never be complete. Likely cause: other windows, or another grace of windows "
        "that are emitted on close or suppressed until then, for a store of the same name. Remedy: go back "
        "to the old windows; or leave the old store in the program and give the new one another name "
        "(store=...); or reset the application: start it under another app_id, without state."
    )


@pytest.mark.parametrize(
    ("old", "new", "was", "now"),
    [
        (TimeWindows(10, grace=50), TimeWindows(10), f"{TUMBLING}{GRACE}50 ms", f"{TUMBLING}{GRACE}0 ms"),
        (TimeWindows(10), TimeWindows(10, grace=50), f"{TUMBLING}{GRACE}0 ms", f"{TUMBLING}{GRACE}50 ms"),
        (
            SlidingWindows(2, grace=50),
            SlidingWindows(2),
            f"sliding windows of 2 ms{GRACE}50 ms",
            f"sliding windows of 2 ms{GRACE}0 ms",
        ),
        (
            SessionWindows(2, grace=50),
            SessionWindows(2),
            f"sessions with a gap of 2 ms{GRACE}50 ms",
            f"sessions with a gap of 2 ms{GRACE}0 ms",
        ),
        (
            SessionWindows(2),
            SessionWindows(5),
            f"sessions with a gap of 2 ms{GRACE}0 ms",
            f"sessions with a gap of 5 ms{GRACE}0 ms",
        ),
    ],
)
def test_windows_that_are_emitted_on_close_keep_when_they_close(
    app: App, old: Any, new: Any, was: str, now: str
) -> None:
    app.run(windowed(old, ON_CLOSE))
    app.run(windowed(old, ON_CLOSE))
    assert f"store 'c': its windows were {was}, and are {now} now" in app.refusal(windowed(new, ON_CLOSE))


def test_final_results_stay_final(app: App) -> None:
    def suppressed(grace: int) -> Topology:
        until_closed = Suppressed.until_window_closes()
        windows = TimeWindows(10, grace=grace)
        return program(lambda grouped: grouped.windowed_by(windows).count().suppress(until_closed, name="s"))

    app.run(suppressed(5))
    assert (
        "store 's-store': its windows were windows whose final results wait for 5 ms, and are windows whose "
        "final results wait for 50 ms now" in app.refusal(suppressed(50))
    )


def test_windows_may_take_records_for_longer_or_not_so_long(app: App) -> None:
    app.run(windowed(TimeWindows(10)))
    app.run(windowed(TimeWindows(10, grace=100)))
    kept = app.windows(windowed(TimeWindows(10))).fetch_range(None, None, 0, 10)
    assert [(window.window, count) for window, count in kept] == [(Window(0, 10), 2)]
    app.run(windowed(TimeWindows(10)))


def test_sessions_that_are_emitted_on_update_may_get_another_gap(app: App) -> None:
    app.run(windowed(SessionWindows(10)))
    head = app.run(windowed(SessionWindows(3, grace=5)))
    assert isinstance(head.types, StoredTypes)
    assert head.types.stores["c"].windows == "sessions"


def test_windows_of_earlier_releases_are_known_with_the_next_epoch(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_windows(plan: Plan) -> StoredTypes:
        types = stored_types(plan)
        known = {name: msgspec.structs.replace(store, windows=None) for name, store in types.stores.items()}
        return msgspec.structs.replace(types, stores=known)

    with monkeypatch.context() as earlier:
        earlier.setattr(commit, "stored_types", without_windows)
        head = app.run(windowed(TimeWindows(10)))
    assert b'"windows"' not in head.encoded()
    app.run(windowed(TimeWindows(10)))
    assert f"its windows were {TUMBLING}, and are" in app.refusal(windowed(SlidingWindows(10)))


def test_a_query_of_a_program_with_other_windows_is_refused_as_well(app: App) -> None:
    app.run(windowed(TimeWindows(10)))
    with pytest.raises(PlanChangedError, match=f"its windows were {TUMBLING}, and are"):
        app.windows(windowed(SlidingWindows(10))).fetch_range(None, None, 0, 10)


def test_windows_are_kept_otherwise_if_they_are_emitted_on_close(app: App) -> None:
    app.run(windowed(TimeWindows(10)))
    message = app.refusal(windowed(TimeWindows(10), ON_CLOSE))
    assert "store 'c' was a timestamped window store and is a timestamped window ordered by time" in message


def test_a_program_that_keeps_its_serdes_goes_on(app: App) -> None:
    app.run(counted())
    app.run(counted())
    app.run(aggregated(serdes.int64))
    assert dict(app.replica(counted()).all()) == {"a": 3}


def test_what_nobody_has_written_can_be_of_another_type(app: App) -> None:
    app.run(counted(), records=0)
    app.run(aggregated(serdes.double, 0.0))
    assert dict(app.replica(aggregated(serdes.double)).all()) == {"a": 1.0}


def test_a_record_may_gain_fields_that_have_a_default(app: App) -> None:
    app.run(aggregated(serdes.json(Total), Total(0), lambda _, __, total: Total(total.amount + 1)))
    wider = serdes.json(TotalAndNote)
    topology = aggregated(
        wider, TotalAndNote(0), lambda _, __, total: TotalAndNote(total.amount + 1, total.note)
    )
    app.run(topology)
    assert dict(app.replica(topology).all()) == {"a": TotalAndNote(2)}
    assert (
        "store 'c': its values of serdes.json can't be taken over with their new schema: field 'note' is gone"
        in (app.refusal(aggregated(serdes.json(Total))))
    )
    unknown = aggregated(serdes.json(TotalAndPlace))
    assert "field 'place' is new and has no default" in app.refusal(unknown)


def test_a_key_may_gain_no_field(app: App) -> None:
    def with_key(key: type[Any]) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=serdes.string, value=serdes.string)
        stream.group_by(lambda _, __: key(1), key=serdes.json(key)).count(store="c")
        return builder.build()

    app.run(with_key(Total))
    app.run(with_key(Total))
    message = app.refusal(with_key(TotalAndNote))
    assert (
        "store 'c': its keys of serdes.json would get other bytes by their new schema, and not be found"
        in message
    )
    assert "repartition 'c-repartition': its keys of serdes.json would get other bytes" in message


def test_a_serde_of_the_users_own_is_known_by_its_class_and_version(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.run(aggregated(Decimals()))
    app.run(aggregated(Decimals()))
    name = f"{__name__}.Decimals"
    other = f"{__name__}.DecimalsWithAComma (version 2)"
    assert f"its values were of {name} and are of {other} now" in app.refusal(
        aggregated(DecimalsWithAComma())
    )
    monkeypatch.setattr(Decimals, "version", 2)
    assert f"its values were of {name} and are of {name} (version 2) now" in app.refusal(
        aggregated(Decimals())
    )
    monkeypatch.setattr(Decimals, "version", 1)
    app.run(aggregated(Decimals()))
    assert dict(app.replica(aggregated(Decimals())).all()) == {"a": 3}


def test_what_was_learned_is_as_good_as_what_was_said(app: App) -> None:
    app.run(aggregated(None))
    app.run(aggregated(serdes.int64))
    app.run(aggregated(None))
    message = app.refusal(aggregated(serdes.string))
    assert "store 'c': its values were of serdes.int64 and are of serdes.string now" in message
    assert dict(app.replica(counted()).all()) == {"a": 3}


def test_what_was_said_nobody_has_learned(app: App) -> None:
    app.run(counted())
    message = app.refusal(aggregated(None))
    assert (
        "its values were of serdes.int64 and are of serdes.auto, which has inferred no type there now"
        in message
    )


def test_keys_of_a_repartition_decide_where_state_is_and_values_decide_nothing(app: App) -> None:
    app.run(moved(serdes.string))
    app.run(moved(serdes.string, serdes.json))
    message = app.refusal(moved(serdes.json))
    assert (
        "repartition 'moved-repartition': its keys were of serdes.string and are of serdes.json now"
        in message
    )


def test_keys_of_a_repartition_with_no_state_behind_it_may_change(app: App) -> None:
    app.run(moved(serdes.string, stateful=False))
    assert app.run(moved(serdes.json, stateful=False)).types == StoredTypes()


def test_a_topic_that_does_for_a_changelog_keeps_its_serdes(tmp_path: Path) -> None:
    users = TableApp(tmp_path / "app", table()).create()
    users.append([(b"ann", b"rome")])
    users.run()
    users.topology = table(value=serdes.bytes)
    with pytest.raises(PlanChangedError) as caught:
        users.run()
    assert "topic 'users': its values were of serdes.string and are of serdes.bytes now" in str(caught.value)
    assert "store 'users': its values were of serdes.string and are of serdes.bytes now" in str(caught.value)
    users.topology = table()
    users.run()


def test_a_query_of_a_program_with_other_serdes_is_refused_as_well(app: App) -> None:
    app.run(counted())
    with pytest.raises(PlanChangedError, match=r"were of serdes\.int64 and are of"):
        app.replica(aggregated(serdes.double)).get("a")


def test_manifests_of_earlier_releases_gain_types_with_the_next_epoch(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(commit, "stored_types", lambda _: msgspec.UNSET)
        head = app.run(counted())
        app.run(counted())
    assert b'"types"' not in head.encoded()
    written = app.run(counted(), records=0).types
    assert isinstance(written, StoredTypes)
    assert str(written.stores["c"].value) == "serdes.int64"
    last = app.chain().head()
    assert last is not None
    assert last.types == written
    app.refusal(aggregated(serdes.double))
