"""The options of the data source: text in, serdes and positions out.

``key`` and ``value`` name serdes; ``key_schema`` and ``value_schema`` are the fields of JSON records, as
Spark writes them ("shop STRING, amount BIGINT"); ``key_windows`` says that keys have windows: their size in
milliseconds, or "sessions". The names of positions are those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from pyspark.sql import types as T  # noqa: N812 - as PySpark's own documents call it

from millstream import serdes
from millstream.errors import ConfigError
from millstream.io.positions import Position
from millstream.log import FileLog, open_log
from millstream.serdes import Serde

SERDES: Final[dict[str, Serde[Any]]] = {
    "string": serdes.string,
    "bytes": serdes.bytes,
    "int16": serdes.int16,
    "int32": serdes.int32,
    "int64": serdes.int64,
    "float32": serdes.float32,
    "double": serdes.double,
    "boolean": serdes.boolean,
    "uuid": serdes.uuid,
    "json": serdes.json,
}
OPTIONS: Final = (
    "log",
    "topic",
    "path",
    "app_id",
    "store",
    "epoch",
    "key",
    "value",
    "key_schema",
    "value_schema",
    "key_windows",
    "key_column",
    "value_column",
    "timestamp_column",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "txnAppId",
    "txnVersion",
    "checkpointLocation",
)
"""All that there are. Spark takes no notice of upper and lower case in them."""
_ALIKE: Final = 0.8
_PYTHON: Final[dict[type[T.DataType], Any]] = {
    T.StringType: str,
    T.LongType: int,
    T.IntegerType: int,
    T.ShortType: int,
    T.DoubleType: float,
    T.FloatType: float,
    T.BooleanType: bool,
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a user has said with ``.option(...)``."""

    given: Mapping[str, str]

    def __post_init__(self) -> None:
        """Refuse what looks like a misspelt option. Others may be meant for Spark, which passes on all."""
        known = {name.lower(): name for name in OPTIONS}
        for name in self.given:
            near = get_close_matches(name.lower(), known, 1, _ALIKE)
            if near and name.lower() not in known:
                raise ConfigError(
                    f'.option("{name}", ...): the data source "millstream" has no such option. Remedy: '
                    f'did you mean "{known[near[0]]}"? There are {", ".join(OPTIONS)}'
                )

    @property
    def log(self) -> FileLog:
        """The log; its address is needed."""
        address = self.given.get("log")
        if not address:
            raise ConfigError(
                'The data source "millstream" needs to know where the log is. Remedy: '
                '.option("log", "file:./millstream-data")'
            )
        return open_log(address if address.startswith(("file:", "kafka:")) else f"file:{address}")

    @property
    def topic(self) -> str:
        """The topic; the path of ``load`` and ``save`` is one, too."""
        topic = self.given.get("topic") or self.given.get("path")
        if not topic:
            raise ConfigError(
                'The data source "millstream" needs a topic, or a store. Remedy: .option("topic", "orders"); '
                'or .option("app_id", "shop").option("store", "counts")'
            )
        return topic

    @property
    def store(self) -> str | None:
        """The store to read, if it is not a topic."""
        return self.given.get("store")

    def serde(self, part: str) -> Serde[Any]:
        """The serde of keys or values, apart from a schema."""
        name = self.given.get(part, "bytes")
        if name not in SERDES:
            raise ConfigError(
                f'.option("{part}", "{name}") names no serde. Remedy: use one of {", ".join(SERDES)}'
            )
        return self._with_windows(SERDES[name]) if part == "key" else SERDES[name]

    def _with_windows(self, serde: Serde[Any]) -> Serde[Any]:
        windows = self.given.get("key_windows")
        if windows is None:
            return serde
        if windows == "sessions":
            return serdes.session_windowed(serde)
        return serdes.time_windowed(serde, self.number("key_windows") or 0)

    def schema_of(self, part: str) -> str | None:
        """The fields of JSON records, as Spark writes them."""
        return self.given.get(f"{part}_schema")

    def number(self, name: str) -> int | None:
        """An option that is a whole number."""
        text = self.given.get(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f'.option("{name}", "{text}") must be a whole number') from None

    def position(self, which: str) -> Position | None:
        """``starting`` or ``ending`` position: by offsets or by time."""
        time = self.given.get(f"{which}Timestamp")
        if time is not None:
            return _time(f"{which}Timestamp", time)
        text = self.given.get(f"{which}Offsets")
        if text is None or text in {"earliest", "latest"}:
            return text  # type: ignore[return-value] # compared just now
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found = None
        if isinstance(found, dict):
            return {int(partition): offset for partition, offset in found.items()}
        if isinstance(found, int):
            return found
        raise ConfigError(
            f'.option("{which}Offsets", {text!r}) is no position. Remedy: use "earliest", "latest", an '
            'offset, or JSON from partitions to offsets: {"0": 41}'
        )


def _time(name: str, text: str) -> datetime:
    try:
        if text.isdigit():
            return datetime.fromtimestamp(int(text) / 1000).astimezone()
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f'.option("{name}", {text!r}) is no time ({error}). Remedy: use milliseconds since 1970, or '
            "2026-01-31T08:00:00+01:00"
        ) from error


def json_schema(kind: T.DataType) -> Any:
    """The schema of `serdes.json` for a type of Spark: everything may be null, as it may there."""
    if isinstance(kind, T.StructType):
        return {field.name: json_schema(field.dataType) | None for field in kind.fields}
    if isinstance(kind, T.ArrayType):
        return list[json_schema(kind.elementType) | None]  # type: ignore[misc] # made at run time
    found = _PYTHON.get(type(kind))
    if found is None:
        raise ConfigError(
            f"A field of JSON can't be of Spark's type {kind.simpleString()}. Remedy: use STRING, BIGINT, "
            "DOUBLE, BOOLEAN, ARRAY or STRUCT, and cast it afterwards"
        )
    return found
