"""Reads an application back from its folders, as plain facts for the oracle.

Topics are read as any consumer would read them, local stores as they lie on disk, manifests and sealed files
as bytes. Nothing here decides whether what it finds is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.simulation.oracle import Copy, Held, Row, manifest_of
from tests.simulation.oracle_programs import table_row

from millstream.durable import FileLayer, is_temporary
from millstream.log.api import TopicPartition
from millstream.log.embedded.file_log import FileLog
from millstream.state.backends import supplier
from millstream.state.local.directory import TaskDirectory
from millstream.topology.plan import Plan
from millstream.types import Partition

__all__ = [
    "copies_in",
    "held_by",
    "manifests_in",
    "rows_of",
    "sealed_in",
    "snapshot_copies",
    "table_rows_of",
]

_NOTHING = {"version": 0, "position": 0}


def held_by(log_root: Path, topic: str, files: FileLayer) -> list[Held]:
    """A topic by partition, as a consumer finds it that has just started."""
    log = FileLog(log_root, files=files)
    if topic not in log.topics():
        return []
    partitions: list[Held] = []
    for number in range(log.config(topic).partitions):
        place = TopicPartition(topic, Partition(number))
        start, end = log.earliest(place), log.latest(place)
        rows: dict[int, Row] = {}
        for batch in log.read(place, start, end):
            found = zip(batch.keys(), batch.values(), batch.timestamps(), strict=True)
            rows.update(zip(batch.offsets(), found, strict=True))
        partitions.append(Held(start, end, rows))
    return partitions


def rows_of(log_root: Path, topic: str, files: FileLayer) -> list[list[Row]]:
    """All records that a topic holds, by partition."""
    return [list(held.rows.values()) for held in held_by(log_root, topic, files)]


def table_rows_of(topic: Iterable[Held]) -> list[Held]:
    """What the records of a table's source topic write to its store, at their offsets."""
    return [
        replace(held, rows={offset: table_row(row) for offset, row in held.rows.items()}) for held in topic
    ]


def manifests_in(folder: Path) -> list[dict[str, Any]]:
    """All manifests in a folder, by epoch, but deltas that are there without those that they change."""
    names = sorted(path for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []
    found: list[dict[str, Any]] = []
    for path in names:
        content = manifest_of(path.read_bytes())
        if "base" not in content:
            found.append(content)
        elif found and found[-1]["epoch"] == content["epoch"] - 1:
            found.append(_changed(found[-1], content))
    return found


def _changed(before: Mapping[str, Any], delta: Mapping[str, Any]) -> dict[str, Any]:
    """What is true after a delta."""
    positions = {(topic, partition): offset for topic, partition, offset in before["positions"]}
    positions.update(((topic, partition), offset) for topic, partition, offset in delta["positions"])
    return {
        **before,
        **{name: value for name, value in delta.items() if name not in ("base", "inferred_types")},
        "positions": [[*place, offset] for place, offset in sorted(positions.items())],
        "tasks": {**before["tasks"], **delta["tasks"]},
        "learned": delta.get("inferred_types", before["learned"]),
    }


def sealed_in(log_root: Path) -> dict[str, bytes]:
    """What is in all sealed files, by their names relative to the log."""
    files = (path for path in log_root.glob("sealed/*/*/*") if not is_temporary(path.name))
    return {path.relative_to(log_root).as_posix(): path.read_bytes() for path in files}


def copies_in(state: Path, plan: Plan, application_id: str, backend: str) -> dict[tuple[str, str], Copy]:
    """The local stores of all tasks that have any, except those that a power cut may have torn."""
    maker = supplier(backend)
    stores: Mapping[str, Iterable[str]] = {str(sub.number): list(sub.stores) for sub in plan.subtopologies}
    copies: dict[tuple[str, str], Copy] = {}
    for folder in sorted((state / application_id).glob("*_*")):
        directory = TaskDirectory(folder)
        if directory.lost_in_a_power_cut():
            continue
        for store in stores[folder.name.split("_")[0]]:
            path = directory.store_path(maker.name, store)
            if path.is_dir():
                with maker.open(path) as opened:
                    found = opened.marker()
                    marker = _NOTHING if found is None else json.loads(found)
                    rows = dict(opened.scan())
                copies[folder.name, store] = _copy(marker, rows)
    return copies


def snapshot_copies(
    folder: Path, scratch: Path, torn: Mapping[Path, bytes] | None = None
) -> list[tuple[str, str, Copy]]:
    """What every visible snapshot of an application makes, but those that were torn: task, store and copy."""
    copies: list[tuple[str, str, Copy]] = []
    for number, manifest in enumerate(sorted(folder.glob("*/*/*/manifests/[0-9]*"))):
        if torn is not None and torn.get(manifest) == manifest.read_bytes():
            continue
        task, store, backend = manifest.parts[-5:-2]
        content = manifest_of(manifest.read_bytes())
        here = scratch / str(number)
        here.mkdir(0o700)
        for file in content["files"]:
            stored = manifest.parents[1] / "files" / f"{file['digest']}-{file['size']}"
            (here / file["name"]).write_bytes(stored.read_bytes())
        with supplier(backend).restore(here, scratch / f"{number}-store") as opened:
            marker = json.loads(opened.marker() or b"")
            copies.append((task, store, _copy(marker, dict(opened.scan()))))
    return copies


def _copy(marker: Mapping[str, int], rows: Mapping[bytes, bytes]) -> Copy:
    return Copy(marker["version"], marker["position"], rows, marker.get("toward", 0))
