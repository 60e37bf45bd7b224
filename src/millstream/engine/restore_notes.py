"""Restores in sight: a task that restores for a while leaves a note beside its state, a coordinator reads it.

Spark tells the coordinator nothing of a task before its end. So the note is a small file in the application's
local state, rewritten a few times a second and removed at the end. A note that a killed task has left
behind is overwritten by its successor, and nobody decides by it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import msgspec

from millstream.state.changelog.follow import Progress, RestoreListener
from millstream.threads import repeated

_PREFIX = ".restoring-"
_EVERY_S = 0.25
_STALE_S = 60.0
_ODD = re.compile(r"[^A-Za-z0-9._-]")


class RestoreNotes(RestoreListener):
    """What takes no time leaves no note.

    `what` tells notes of the same store apart: of a restore, and of the loading of its topic.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic, *, what: str = "") -> None:
        self._folder = folder
        self._what = what
        self._clock = clock
        self._due: dict[Path, float] = {}
        self._written: set[Path] = set()

    def on_start(self, progress: Progress) -> None:
        self._due[self._note(progress)] = self._clock() + _EVERY_S

    def on_batch(self, progress: Progress) -> None:
        note = self._note(progress)
        if self._clock() >= self._due.get(note, 0.0):
            self._due[note] = self._clock() + _EVERY_S
            self._written.add(note)
            temporary = note.with_name(f"{note.name}.{os.getpid()}")
            with suppress(OSError):  # a note that can't be written is not worth a failed epoch
                temporary.write_bytes(msgspec.json.encode(progress))
                temporary.replace(note)

    def on_end(self, progress: Progress) -> None:
        self._forget(progress)

    def on_suspended(self, progress: Progress) -> None:
        self._forget(progress)

    def _forget(self, progress: Progress) -> None:
        note = self._note(progress)
        self._due.pop(note, None)
        if note in self._written:
            self._written.discard(note)
            note.unlink(missing_ok=True)

    def _note(self, progress: Progress) -> Path:
        return self._folder / f"{_PREFIX}{self._what}{_ODD.sub('_', progress.store)}-{progress.partition}"


def restores_told(
    folder: Path | None, listeners: Sequence[Callable[[Progress], None]]
) -> AbstractContextManager[None]:
    """Tell listeners of restores that go on, a few times a second, for the length of a `with` block."""

    def tell() -> None:
        for progress in restores_in(folder):
            for listener in listeners:
                listener(progress)

    return repeated(tell, _EVERY_S, "millstream-restores") if listeners else nullcontext()


def restores_in(folder: Path | None) -> list[Progress]:
    """The restores that go on below an application's local state; none if that is not on this host."""
    found: list[Progress] = []
    if folder is None:
        return found
    for note in sorted(folder.glob(f"{_PREFIX}*")):
        with suppress(OSError, msgspec.DecodeError):  # just removed, or being written
            if time.time() - note.stat().st_mtime < _STALE_S:
                found.append(msgspec.json.decode(note.read_bytes(), type=Progress))
    return found
