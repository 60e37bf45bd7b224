"""`stream_from`: a streaming frame of Spark as a stream. Serdes follow from the types of its columns.

Nothing here imports PySpark: a frame is asked for its schema, which is plain data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from millstream import serdes
from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.topology.frame_sources import FrameSource

_BY_TYPE: Final[dict[str, Serde[Any]]] = {
    "string": serdes.string,
    "binary": serdes.bytes,
    "short": serdes.int16,
    "integer": serdes.int32,
    "long": serdes.int64,
    "float": serdes.float32,
    "double": serdes.double,
    "boolean": serdes.boolean,
}
_IN_JSON: Final[dict[str, type]] = {
    "string": str,
    "short": int,
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
    "boolean": bool,
}
_TIMES: Final = frozenset({"timestamp", "timestamp_ntz", "date", "long"})


def check_frame(frame: Any) -> None:
    """Refuse what is no streaming frame."""
    if not hasattr(frame, "isStreaming") or not hasattr(frame, "selectExpr"):
        raise TopologyError(
            f"stream_from() takes a streaming DataFrame of Spark, and got {type(frame).__name__}. Remedy: "
            "give what spark.readStream...load() returns; a topic is read with stream()"
        )
    if not frame.isStreaming:
        raise TopologyError(
            "stream_from() got a DataFrame that is not streaming: it would be read once, and nobody could "
            "tell what is new in it. Remedy: make it with spark.readStream; or write it to a topic with "
            'df.write.format("millstream"), and read that with stream()'
        )


def frame_source(
    frame: Any, topic: str, key: Any, value: Any, timestamp: Any, partitions: int | None
) -> tuple[FrameSource, Serde[Any] | None, Serde[Any]]:
    """The source, and the serdes that its columns have."""
    value = list(frame.columns) if value is None else value
    given = {"key": key, "value": value, "timestamp": timestamp}
    chosen = {part: what for part, what in given.items() if what is not None}
    selected = _selected(frame, chosen)
    types = {field["name"]: field["type"] for field in selected.schema.jsonValue()["fields"]}
    if timestamp is not None and types["timestamp"] not in _TIMES:
        raise TopologyError(
            f"stream_from(timestamp=...): the column is of Spark's type {types['timestamp']!r}. Remedy: give "
            "a TIMESTAMP, or a BIGINT of milliseconds since 1970"
        )
    key_serde = None if key is None else serde_of_type(types["key"])
    return FrameSource(topic, selected, partitions), key_serde, serde_of_type(types["value"])


def _selected(frame: Any, chosen: Mapping[str, Any]) -> Any:
    """The frame with the columns of a record, and no others."""
    names = frame.columns
    added = frame
    texts = []
    for part, what in chosen.items():
        if isinstance(what, str | list | tuple):
            texts.append(_text(what, names, part))
        elif hasattr(what, "alias"):  # an expression
            added = added.withColumn(f"__{part}", what)
            texts.append(f"`__{part}` AS `{part}`")
        else:
            raise TopologyError(
                f"stream_from({part}={what!r}): that is no column. Remedy: give the name of a column, "
                "several names, or an expression such as col('a') + 1"
            )
    return added.selectExpr(*texts)


def _text(given: str | Sequence[str], names: Sequence[str], part: str) -> str:
    """A column, or a record of several, as Spark's SQL says it."""
    wanted = [given] if isinstance(given, str) else list(given)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise TopologyError(
            f"stream_from({part}={given!r}): the frame has no column {missing[0]!r}. Its columns are: "
            f"{', '.join(names)}"
        )
    fields = ", ".join(f"`{name}`" for name in wanted)
    return f"{fields} AS `{part}`" if isinstance(given, str) else f"struct({fields}) AS `{part}`"


def serde_of_type(kind: Any) -> Serde[Any]:
    """The serde of a column of Spark: its own, or JSON for records and lists.

    >>> serde_of_type("long"), serde_of_type({"type": "struct", "fields": [{"name": "n", "type": "long"}]})
    (serdes.int64, serdes.json({n: int | None}))
    >>> serde_of_type("timestamp")
    serdes.json
    """
    if isinstance(kind, str):
        return _BY_TYPE.get(kind, serdes.json)
    schema = _schema(kind)
    return serdes.json(schema) if isinstance(schema, Mapping) else serdes.json


def _schema(kind: Any) -> Any:
    """What `serdes.json` calls a type; None if it has no name for it."""
    if isinstance(kind, str):
        return _IN_JSON.get(kind)
    if kind["type"] == "struct":
        fields = {field["name"]: _schema(field["type"]) for field in kind["fields"]}
        is_known = all(found is not None and not isinstance(found, Mapping) for found in fields.values())
        return {name: found | None for name, found in fields.items()} if is_known else None
    if kind["type"] == "array":
        inner = _schema(kind["elementType"])
        if inner is None or isinstance(inner, Mapping):
            return None
        return list[inner | None]  # type: ignore[valid-type] # made at run time
    return None
