"""`StreamsConfig`: all settings of an application, in one frozen dataclass."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from difflib import get_close_matches
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias, get_args

from millstream import handlers, timestamps
from millstream.arguments import checks_arguments
from millstream.errors import ConfigError
from millstream.names import HOW_TO_NAME, is_topic_name
from millstream.offset_reset import OffsetReset, how_to_reset, is_offset_reset
from millstream.state_dir import check_state_dir

Engine: TypeAlias = Literal["jobs", "resident", "local"]
"""The names of engines."""

_APPLICATION_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_PREFIX = "MILLSTREAM_"
TAG_PREFIX = "MILLSTREAM_TAG_"
"""Of variables that say where a host stands: see `StreamsConfig.rack_aware_assignment_tags`."""
BACKENDS = ("lmdb", "memory", "rocksdb")
"""The store backends that can be chosen by name."""
_NOT_SETTINGS = {"MILLSTREAM_LOG", "MILLSTREAM_FAILPOINTS", "MILLSTREAM_SOAK"}
"""For the command line, and for tests: see `millstream.failpoints` and the Makefile."""


@checks_arguments()
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StreamsConfig:
    """Settings of an application.

    deserialization_handler, processing_handler, production_handler
        What to do about a record that can't be read, that a function of yours fails on, or that can't
        be written: see `millstream.handlers`.
    late_record_handler
        What to do about a record that is too late for its windows, beyond counting it.
    dead_letter_topic
        Where `handlers.dead_letter` sends records.
    timestamp_extractor
        Where event time comes from, for sources that say nothing else: see `millstream.timestamps`.
    commit_interval_ms
        The trigger interval: an epoch begins so long after the one before at the earliest, unless records
        are waiting that did not fit into that one, or a processor has called `context.commit()`. With nothing
        to do, the next append begins it.
    max_records_per_epoch
        How many records of each source partition an epoch takes at most.
    max_bytes_per_epoch
        How many bytes of each source partition an epoch takes at most, as they stand in the log. A record
        that alone is larger goes alone.
    offset_reset
        Where a source that was never read begins, unless it says so itself: "earliest", "latest", at a time
        (milliseconds, or a datetime with its zone), or a timedelta before now. By the timestamps of the
        records: the first that is not older, or the end if there is none.
    max_task_idle_ms
        How long records wait for a partition that has none, if they could meet its own: else what comes to it
        later may be too late. 0: not at all. -1: neither, and `enforced_processing` does not count it.
    caching
        False: every update of every table goes on, in order, whatever its store says. True: each store says
        so itself (`Store(caching=...)`).
    state_dir
        Where local state is kept, on a disk of each host. `{host}` in it is the name of the host, and
        `{env:NAME}` a variable of the environment there: see `docs/running.md`.
    state_cleanup_delay_ms
        After how long local state is deleted on a host that no longer runs its task. -1: never.
    backend
        Which store backend keeps it: "lmdb", "rocksdb", "memory", or a supplier of your own.
    rocksdb_config_setter
        A function that gets the name of each store on RocksDB, its `rocksdict.Options` and its
        `rocksdict.BlockBasedOptions`, and may change them; a class with such a method `set_config`; or the
        dotted name of one of them. Every worker must be able to import it.
    snapshot_uri
        Where snapshots of local state go: a folder that every host sees, or any URI of `pyarrow.fs`, such as
        "s3://bucket/path". None: no snapshots; a lost store is restored from its whole changelog.
    snapshot_interval_epochs
        How many epochs after its last snapshot a task that has changed gets the next one.
    snapshot_interval_bytes
        The same, sooner, after so many bytes of its changelogs; None: only epochs count.
    snapshots_retained
        How many snapshots of each store are kept.
    default_partitions
        Of topics that the application writes to and that do not exist yet.
    max_epoch_retries
        How often an epoch is run again that failed, though your program is not to blame.
    max_restarts
        How often, after that, the loop is started again from the last commit (with a new Spark, if
        Millstream made it and it is gone) before the uncaught exception handler is asked.
    lease_ttl_ms
        How long another machine waits for a coordinator that says nothing before it takes over.
    tick_ms
        The step of the wall clock that punctuators see.
    maintenance_interval_epochs
        After how many epochs at most topics are compacted and merged, retention is applied and old files are
        deleted, beside the epochs; sooner where much of the state has changed; 0: never.
    engine
        What runs tasks. "resident": Spark tasks that stay from epoch to epoch, which takes less time and
        holds their cores. "jobs": a Spark job per epoch. "local": this process, one task after the other,
        without Spark and Java. None: "jobs" on a Spark session that you give, else "resident". See
        `docs/engine.md`.
    slots
        Of the resident engine: in how many Spark tasks it runs. 0: one per core.
    slot_timeout_ms
        Of the resident engine: after how long a slot that says nothing is replaced. One that died is replaced
        at once.
    num_standby_replicas
        How many other hosts of a Spark cluster keep a copy of each task's state, so that one of them can go
        on at once when its host is lost. See `docs/instances.md`.
    acceptable_recovery_lag
        How many records of its changelogs a host may miss and still run a task at once.
    max_warmup_replicas
        How many tasks, or copies, at most move to other hosts at the same time, each by a copy that is made
        there first.
    rack_aware_assignment_tags
        Names of tags in which the copies of a task should differ, such as ("zone",). A host's tags are the
        variables MILLSTREAM_TAG_<NAME> of its executors.
    drain_timeout_ms
        How long `Streams.drain(host)` waits for the host's tasks to be elsewhere.
    tls_certificate, tls_key, tls_ca
        Of the resident engine: PEM files with which its processes encrypt their connections, at the same
        paths on all hosts: a certificate for server and client, its key, and whoever signs all certificates.
        None: connections are authenticated and not encrypted.
    tls_name
        The name that all certificates are made out to; None: each to the addresses of its host.
    spark_settings
        More settings for the Spark that Millstream makes when none is given.

    >>> from millstream import StreamsConfig
    >>> StreamsConfig(dead_letter_topic="bad-records").dead_letter_topic
    'bad-records'
    """

    deserialization_handler: handlers.Handler = handlers.fail
    processing_handler: handlers.Handler = handlers.fail
    production_handler: handlers.Handler = handlers.fail
    late_record_handler: handlers.Handler = handlers.skip
    dead_letter_topic: str | None = None
    timestamp_extractor: timestamps.TimestampExtractor = timestamps.fail_on_invalid_timestamp
    commit_interval_ms: int = 100
    max_records_per_epoch: int = 100_000
    max_bytes_per_epoch: int = 64 << 20
    offset_reset: OffsetReset = "earliest"
    max_task_idle_ms: int = 0
    caching: bool = True
    state_dir: Path = Path("millstream-state")
    state_cleanup_delay_ms: int = 600_000
    backend: Any = "lmdb"
    rocksdb_config_setter: Any = None
    snapshot_uri: str | Path | None = field(default=None, repr=False)  # it may hold a secret
    snapshot_interval_epochs: int = 100
    snapshot_interval_bytes: int | None = None
    snapshots_retained: int = 2
    default_partitions: int = 1
    max_epoch_retries: int = 3
    max_restarts: int = 3
    lease_ttl_ms: int = 30_000
    tick_ms: int = 1_000
    maintenance_interval_epochs: int = 100
    engine: Engine | None = None
    slots: int = 0
    slot_timeout_ms: int = 10_000
    num_standby_replicas: int = 0
    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    rack_aware_assignment_tags: tuple[str, ...] = ()
    drain_timeout_ms: int = 60_000
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    tls_name: str | None = None
    spark_settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (
            "commit_interval_ms",
            "max_records_per_epoch",
            "max_bytes_per_epoch",
            "default_partitions",
            "lease_ttl_ms",
            "tick_ms",
            "snapshot_interval_epochs",
            "snapshots_retained",
            "slot_timeout_ms",
            "max_warmup_replicas",
            "drain_timeout_ms",
        ):
            _check_at_least(name, getattr(self, name), 1)
        if self.engine is not None and self.engine not in get_args(Engine):
            raise ConfigError(
                f"engine={self.engine!r} is none. Remedy: use one of {', '.join(map(repr, get_args(Engine)))}"
            )
        for name in (
            "max_epoch_retries",
            "max_restarts",
            "maintenance_interval_epochs",
            "slots",
            "num_standby_replicas",
            "acceptable_recovery_lag",
        ):
            _check_at_least(name, getattr(self, name), 0)
        if self.snapshot_interval_bytes is not None:
            _check_at_least("snapshot_interval_bytes", self.snapshot_interval_bytes, 1)
        for name in ("state_cleanup_delay_ms", "max_task_idle_ms"):
            _check_at_least(name, getattr(self, name), -1)
        if not is_offset_reset(self.offset_reset):
            raise ConfigError(f"offset_reset is {self.offset_reset!r}. Remedy: {how_to_reset()}")
        self._check_state()
        self._check_tags()
        self._check_tls()
        self._check_functions()

    def _check_state(self) -> None:
        if not isinstance(self.caching, bool):
            raise ConfigError(f"caching is {self.caching!r}. Remedy: True (each store decides) or False")
        check_backend(self.backend)
        if isinstance(self.state_dir, str):
            object.__setattr__(self, "state_dir", Path(self.state_dir))
        if not isinstance(self.state_dir, Path):
            raise ConfigError(f"state_dir is {self.state_dir!r}. Remedy: give the path of a folder")
        check_state_dir(self.state_dir)
        if self.snapshot_uri is not None and not (
            isinstance(self.snapshot_uri, str | Path) and str(self.snapshot_uri)
        ):
            raise ConfigError(
                f"snapshot_uri is a {type(self.snapshot_uri).__name__}, or empty. Remedy: give a folder, an "
                "URI such as 's3://bucket/path', or None for no snapshots."
            )

    def _check_tags(self) -> None:
        tags = self.rack_aware_assignment_tags
        if isinstance(tags, str) or not all(isinstance(tag, str) and tag for tag in tags):
            raise ConfigError(f"rack_aware_assignment_tags is {tags!r}. Remedy: give names, as in ('zone',)")
        object.__setattr__(self, "rack_aware_assignment_tags", tuple(tag.lower() for tag in tags))

    def _check_tls(self) -> None:
        files = ("tls_certificate", "tls_key", "tls_ca")
        for name in files:
            given = getattr(self, name)
            if isinstance(given, str):
                object.__setattr__(self, name, Path(given))
            elif given is not None and not isinstance(given, Path):
                raise ConfigError(f"{name} is {given!r}. Remedy: give the path of a PEM file")
        missing = [name for name in files if getattr(self, name) is None]
        if 0 < len(missing) < len(files):
            raise ConfigError(
                f"{missing[0]} is missing. Remedy: TLS needs {', '.join(files)}: give all three"
            )

    def _check_functions(self) -> None:
        _check_callable("timestamp_extractor", self.timestamp_extractor, timestamps.HOW_TO_EXTRACT)
        if self.dead_letter_topic is not None and not is_topic_name(self.dead_letter_topic):
            raise ConfigError(
                f"dead_letter_topic is {self.dead_letter_topic!r}, which can't be the name of a topic. "
                f"Remedy: {HOW_TO_NAME}"
            )
        for kind in handlers.ErrorKind:
            field = f"{kind.value}_handler"
            handler = getattr(self, field)
            _check_callable(field, handler, "use one of millstream.handlers")
            if handler is handlers.dead_letter and self.dead_letter_topic is None:
                raise ConfigError(
                    f"{field} is handlers.dead_letter, but there is no dead_letter_topic. Remedy: set one"
                )

    def __repr__(self) -> str:
        """What differs from the usual, without what may hold a secret."""
        usual = StreamsConfig.__dataclass_fields__
        given = {
            name: getattr(self, name)
            for name, one in usual.items()
            if one.repr and getattr(self, name) != (one.default if one.default is not MISSING else {})
        }
        said = (f"{name}={getattr(found, '__name__', None) or repr(found)}" for name, found in given.items())
        return f"StreamsConfig({', '.join(said)})"

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> StreamsConfig:
        """The settings that the environment gives as `MILLSTREAM_<NAME>`.

        Handlers and the timestamp extractor are named as in `millstream.handlers` and
        `millstream.timestamps`; `MILLSTREAM_SPARK_SETTINGS` is a TOML table.

        >>> from millstream import StreamsConfig
        >>> config = StreamsConfig.from_env(
        ...     {
        ...         "MILLSTREAM_COMMIT_INTERVAL_MS": "50",
        ...         "MILLSTREAM_PROCESSING_HANDLER": "skip",
        ...         "MILLSTREAM_SPARK_SETTINGS": '{"spark.master" = "local[2,4]"}',
        ...     }
        ... )
        >>> config.commit_interval_ms, config.spark_settings
        (50, {'spark.master': 'local[2,4]'})
        """
        given = os.environ if environment is None else environment
        found = {
            name.removeprefix(_PREFIX).lower(): _from_text(name, text)
            for name, text in sorted(given.items())
            if name.startswith(_PREFIX) and name not in _NOT_SETTINGS and not name.startswith(TAG_PREFIX)
        }
        return cls(**_resolved(found, "the environment"))

    @classmethod
    def from_toml(cls, path: str | Path) -> StreamsConfig:
        r"""The settings in a TOML file: its table `[millstream]`, or the whole file if it has none.

        >>> import tempfile
        >>> from millstream import StreamsConfig
        >>> with tempfile.NamedTemporaryFile("w") as file:
        ...     _ = file.write('[millstream]\ntick_ms = 250\nstate_dir = "/var/lib/state"')
        ...     file.flush()
        ...     StreamsConfig.from_toml(file.name).tick_ms
        250
        """
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path} can't be read as TOML: {error}") from error
        return cls(**_resolved(content.get("millstream", content), str(path)))

    def handler_of(self, kind: handlers.ErrorKind) -> handlers.Handler:
        """The handler of a kind of error.

        >>> from millstream import StreamsConfig, handlers
        >>> StreamsConfig().handler_of(handlers.ErrorKind.PROCESSING) is handlers.fail
        True
        """
        handler: handlers.Handler = getattr(self, f"{kind.value}_handler")
        return handler


def is_setting(name: str) -> bool:
    """Whether `StreamsConfig` has a setting of this name.

    >>> is_setting("tick_ms"), is_setting("app_id")
    (True, False)
    """
    return name in StreamsConfig.__dataclass_fields__


def _from_text(name: str, text: str) -> Any:
    """A value of the environment: TOML where it can be read as that, else the text itself."""
    if name == f"{_PREFIX}SPARK_SETTINGS":
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{name} is {text!r}, which is no table of TOML: {error}") from error
    if name == f"{_PREFIX}OFFSET_RESET" and re.match(r"\d+-", text):
        try:
            return datetime.fromisoformat(text)
        except ValueError as error:
            raise ConfigError(f"{name} is {text!r}, which is no time: {error}") from error
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _resolved(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Keyword arguments of `StreamsConfig`: known names only, and functions in place of their names."""
    known = [setting.name for setting in fields(StreamsConfig)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        near = get_close_matches(unknown[0], known, 1)
        raise ConfigError(
            f"{where} has a setting {unknown[0]!r}, which is unknown. "
            + (f"Did you mean {near[0]!r}? " if near else "")
            + f"Settings are: {', '.join(known)}."
        )
    return {name: _value(name, value, where) for name, value in given.items()}


def _value(name: str, value: Any, where: str) -> Any:
    if name in {"state_dir", "tls_certificate", "tls_key", "tls_ca"}:
        return Path(str(value)).expanduser()
    if name == "snapshot_uri":
        return str(value)
    if name == "spark_settings":
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: spark_settings is {value!r}, but it must be a table")
        return {key: str(setting) for key, setting in value.items()}
    if name == "timestamp_extractor":
        return _function(timestamps, name, value, where)
    return _function(handlers, name, value, where) if name.endswith("_handler") else value


def _function(module: ModuleType, name: str, value: Any, where: str) -> Any:
    choices = sorted(
        key
        for key, found in vars(module).items()
        if isfunction(found) and found.__module__ == module.__name__ and not key.startswith("_")
    )
    if value not in choices:
        raise ConfigError(f"{where}: {name} is {value!r}. Remedy: use one of {', '.join(choices)}")
    return getattr(module, value)


def _check_callable(name: str, given: object, remedy: str) -> None:
    if not callable(given):
        raise ConfigError(f"{name} is {given!r}, which can't be called. Remedy: {remedy}")


def _check_at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} is {value!r}, but it must be a whole number of at least {least}")


def check_config(given: StreamsConfig | None) -> StreamsConfig:
    """The settings that were given, or the usual ones.

    >>> check_config({"tick_ms": 5})
    Traceback (most recent call last):
    millstream.errors.ConfigError: config is {'tick_ms': 5}. Remedy: give StreamsConfig(...), or nothing
    """
    if given is not None and not isinstance(given, StreamsConfig):
        raise ConfigError(f"config is {given!r}. Remedy: give StreamsConfig(...), or nothing")
    return StreamsConfig() if given is None else given


def check_backend(choice: object) -> None:
    """Refuse the name of a store backend that there is not.

    >>> check_backend("leveldb")
    Traceback (most recent call last):
    millstream.errors.ConfigError: There is no state backend 'leveldb'. Remedy: use one of lmdb, memory, ...
    """
    if choice is None or (isinstance(choice, str) and choice not in BACKENDS):
        raise ConfigError(
            f"There is no state backend {choice!r}. Remedy: use one of {', '.join(BACKENDS)}, or pass a "
            "supplier object."
        )


def check_application_id(application_id: str) -> str:
    """The id itself, if it can name folders and topics.

    >>> check_application_id("word-count")
    'word-count'
    """
    if not isinstance(application_id, str) or not _APPLICATION_ID.fullmatch(application_id):
        raise ConfigError(
            f"{application_id!r} can't be an application id: it names folders and topics. "
            "Remedy: use letters, digits, '.', '_' and '-', at most 200 of them, and no '.' at the beginning"
        )
    return application_id
