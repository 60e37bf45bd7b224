"""``state get``, ``top`` and ``export``: the committed rows of a store, without the program that wrote them.

They come from the changelog, at the last commit: never from the files that a task works on.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from millstream.commit.manifest import ManifestChain
from millstream.errors import MillstreamError, UnknownStoreError
from millstream.log import FileLog
from millstream.maintenance.application_reset import find_application
from millstream.query.manifest_stores import plan_of
from millstream.query.replica import Replica, SessionReplica, StoreReplica, VersionedReplica, WindowReplica
from millstream.record import VersionedRecord, Windowed
from millstream.serdes import Serde
from millstream.state.specs import StoreBuilder

_REPLICAS: Final[tuple[type[Replica], ...]] = (StoreReplica, WindowReplica, SessionReplica, VersionedReplica)
_END_OF_TIME: Final = (1 << 62) - 1

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CommittedStore:
    """A store of an application, as it was committed last."""

    spec: StoreBuilder
    replica: Replica

    @classmethod
    def open(cls, log: FileLog, app_id: str, store: str) -> CommittedStore:
        """The store of an application; an error names those that there are."""
        storage = find_application(log, app_id)
        head = ManifestChain(storage).latest()
        if head is None or not head.tasks:
            raise UnknownStoreError(
                f"Application {app_id!r} has committed no state yet. Likely cause: it has read no record, or "
                "was reset. Remedy: run it."
            )
        plan = plan_of(head)
        spec = next((sub.stores[store] for sub in plan.subtopologies if store in sub.stores), None)
        if spec is None:
            known = ", ".join(sorted(name for sub in plan.subtopologies for name in sub.stores)) or "none"
            raise UnknownStoreError(f"Application {app_id!r} has no store {store!r}. Stores: {known}.")
        kind = next((one for one in _REPLICAS if spec.kind in one.kinds), None)
        if kind is None:
            raise MillstreamError(
                f"Store {store!r} is a {spec.kind.value} store: it belongs to its operator alone."
            )
        return cls(spec, kind(storage, log, plan, store))

    def get(self, key: Any) -> Iterator[Row]:
        """The rows of a key: one, or one per window."""
        replica = self.replica
        if isinstance(replica, StoreReplica):
            value = replica.get(key)
            if value is not None:
                yield _row(key, value)
        elif isinstance(replica, VersionedReplica):
            found = replica.get(key)
            if found is not None:
                yield _row(key, found)
        elif isinstance(replica, SessionReplica):
            for windowed, value in replica.find_sessions(key, 0, _END_OF_TIME):
                yield _row(windowed, value)
        elif isinstance(replica, WindowReplica):
            size_ms = self.spec.window_size_ms
            for start, value in replica.fetch(key, 0, _END_OF_TIME):
                end = {} if size_ms is None else {"end": start + size_ms}
                yield {"key": key, "start": start, **end, "value": _plain(value)}

    def rows(self) -> Iterator[Row]:
        """All rows, in no order that means anything."""
        replica = self.replica
        if isinstance(replica, SessionReplica):
            pairs: Iterable[tuple[Any, Any]] = replica.find_sessions_range(None, None, 0, _END_OF_TIME)
        elif isinstance(replica, StoreReplica | VersionedReplica | WindowReplica):
            pairs = replica.all()
        for key, value in pairs:
            yield _row(key, value)

    def key_of(self, text: str) -> Any:
        """A key as somebody types it, by the store's serde."""
        serde: Serde[Any] = self.spec.key
        try:
            value = _TYPED.get(getattr(serde, "name", ""), msgspec.json.decode)(text)
            serde.serialize(value)
        except (ValueError, TypeError) as error:
            raise click.BadParameter(
                f"{text!r} can't be a key of store {self.spec.name!r}, whose keys are of {serde!r}: {error}",
                param_hint="KEY",
            ) from error
        return value


_TYPED: Final[dict[str, Callable[[str], Any]]] = {"serdes.string": str, "serdes.bytes": bytes.fromhex}
"""How a key is typed; all others as JSON."""


def _row(key: Any, value: Any) -> Row:
    if isinstance(key, Windowed):
        return {"key": key.key, "start": key.window.start, "end": key.window.end, "value": _plain(value)}
    if isinstance(value, VersionedRecord):
        return {"key": key, "value": _plain(value.value), "timestamp": value.timestamp}
    return {"key": key, "value": _plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def shown(row: Row) -> Row:
    """A row whose key and value are text, numbers or JSON."""
    encoded = msgspec.json.decode(msgspec.json.encode(row, enc_hook=_as_text))
    assert isinstance(encoded, dict)
    return encoded


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def as_text(row: Row) -> Row:
    """A row for a table: what has parts is written as JSON."""
    return {
        name: msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value
        for name, value in shown(row).items()
    }


def largest_first(rows: Iterable[Row], field: str | None) -> list[Row]:
    """Rows by their value, or a field of it, the largest first; those that have none at the end."""

    def rank(row: Row) -> tuple[bool, float]:
        value = (
            row["value"].get(field) if field is not None and isinstance(row["value"], dict) else row["value"]
        )
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True, 0.0
        return False, -value

    return sorted(rows, key=rank)


def export(rows: Iterable[Row], target: str) -> int:
    """Write rows to a file by its ending, .csv, .parquet or .jsonl; ``-`` is JSON to standard output."""
    plain = [shown(row) for row in rows]
    if target == "-":
        for row in plain:
            click.echo(msgspec.json.encode(row).decode())
        return len(plain)
    try:
        _write(Path(target), plain)
    except OSError as error:
        raise click.ClickException(
            f"{target} can't be written: {error.strerror or error}. Remedy: name a file in a folder that is "
            "there and that you may write into."
        ) from error
    return len(plain)


def _write(path: Path, plain: list[Row]) -> None:
    if path.suffix in {".json", ".jsonl", ".ndjson"}:
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in plain))
    elif path.suffix == ".csv":
        _write_csv(path, plain)
    elif path.suffix == ".parquet":
        import polars as pl  # noqa: PLC0415 - only here

        pl.DataFrame(plain, infer_schema_length=None).write_parquet(path)
    else:
        raise click.BadParameter(
            f"{str(path)!r} ends in none of .csv, .parquet, .jsonl; '-' is JSON lines to standard output.",
            param_hint="FILE",
        )


def _write_csv(path: Path, rows: list[Row]) -> None:
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns or ["key", "value"])
        writer.writeheader()
        writer.writerows(flat)


def _flat(row: Row) -> Row:
    """Fields of a value are columns of their own; what is deeper is JSON."""
    value = row["value"]
    fields = (
        {f"value.{name}": part for name, part in value.items()}
        if isinstance(value, dict)
        else {"value": value}
    )
    flat = {**{name: part for name, part in row.items() if name != "value"}, **fields}
    return {
        name: msgspec.json.encode(part).decode() if isinstance(part, dict | list) else part
        for name, part in flat.items()
    }
