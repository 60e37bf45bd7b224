"""Failpoints: named places where a test can stop the program.

A durable action is a row of steps, and a crash may come between any two of them. Each step therefore ends in
``failpoints.hit("name")``. Nothing is armed in normal use and a hit costs one dictionary lookup. A test arms
a name in this process::

    with failpoints.armed("log.frame_written", "raise") as point:
        ...  # raises InjectedCrash at the step
    assert point.fired

or in a child process, by the environment::

    MILLSTREAM_FAILPOINTS = "log.frame_written=kill@2,durable.linked=torn"

where ``@2`` lets the first two hits pass. The actions:

========== ==============================================================================================
raise      raise :class:`InjectedCrash`, which ``except Exception`` does not swallow
kill       SIGKILL this process
stop       SIGSTOP this process, out of the reach of what its parents leave behind; SIGCONT lets it go on
torn       the next write of the durable layer writes only a prefix, then SIGKILL
torn-raise the same, then :class:`InjectedCrash`
callable   in process only: call it
========== ==============================================================================================

:data:`REGISTRY` lists every name with its meaning. Tests iterate over it; hitting or arming a name that is
not listed is an error, so the list can't rot.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

ENVIRONMENT_VARIABLE: Final = "MILLSTREAM_FAILPOINTS"

REGISTRY: Final[dict[str, str]] = {
    # durable/: single files
    "durable.file_written": "A new file's bytes are written, but not synced.",
    "durable.file_synced": "A new file's bytes are synced; its name may still be lost.",
    "durable.linked": "A file got its final name by a hard link; the folder is not synced.",
    "durable.replaced": "A file took the place of another by a rename; the folder is not synced.",
    "durable.folder_synced": "A folder is synced: the names in it are durable.",
    # log/: one partition of the embedded log
    "log.locked": "A writer holds the partition's lock and has written nothing.",
    "log.frame_written": "The new entries are written behind the watermark, but not synced.",
    "log.frame_synced": "The new entries are durable, but the watermark does not cover them.",
    "log.watermark_written": "The watermark covers the new entries; the writer has not been told.",
    "log.tail_cut": "A torn tail was cut off; the watermark is not rewritten yet.",
    "log.segment_created": "A new segment has its name, but the watermark is still in the old one.",
    "log.start_moved": "Retention moved the log's start; the old segments still exist.",
    "log.rewritten_named": "A rewritten segment has its name; those that it replaces still exist.",
    "log.replaced_removed": "Replaced segments are deleted; the folder is not synced.",
    "log.topic_built": "A new topic is complete in a temporary folder and has no name yet.",
    "log.topic_named": "A new topic has its name; the folder of topics is not synced.",
    "log.partitions_built": "New partitions of a topic are durable; the topic does not count them.",
    "log.partitions_counted": "The topic counts its new partitions; nobody has been told.",
    "log.topic_unnamed": "A deleted topic has lost its name; its folder still exists.",
    # commit/: the ten steps of an epoch, see millstream.commit.epoch
    "commit.leased": "Step 1: the coordinator holds the lease and knows the head.",
    "commit.fenced": "Step 1: its own manifest follows the head; nobody else can take its place.",
    "commit.planned": "Step 2: the cut and the tasks of the epoch are chosen.",
    "commit.opened": "Step 3: a task's stores are at the version that was named.",
    "commit.processed": "Step 4: a task has processed its records; no local store has changed.",
    "commit.sealing": "Step 5: a task is about to seal; its stores are closed.",
    "commit.sealed": "Step 5: a task has sealed; durable when all that share its file have.",
    "commit.reported": "Step 6: a task has told the coordinator.",
    "commit.checked": "Step 7: all reports agree; the manifest is not written.",
    "commit.manifest_written": "Step 7: the epoch is committed; the witness does not say so yet.",
    "commit.witness_written": "Step 8: the witness says which epoch was the last one that was committed.",
    "commit.published": "Step 8: topics show what the epoch made.",
    "commit.ended": "Step 9: listeners were told; the next epoch may be planned.",
    "commit.store_applied": "Step 10: one store of a task has applied the epoch, others may not have.",
    "commit.applied": "Step 10: a task's local stores are at the head.",
    "writer.sealed": "A task of a batch from outside has sealed its rows; nobody knows of it yet.",
    "writer.committed": "A batch from outside is committed; topics do not show it yet.",
    "writer.published": "A batch from outside is in its topics; what was before it is not forgotten.",
    "maintenance.manifest_removed": "A manifest that is no longer kept is deleted; others may be there.",
    "maintenance.file_collected": "A sealed file that nobody needs is deleted; others may still be there.",
    "state.task_renamed": "A task's folder is out of the way for deletion; it still exists.",
    "state.step_written": "A store has taken one step of a write that may be done in steps.",
    "state.rewrite_copied": "A small copy of a store is whole; the large store is still in its place.",
    "state.rewrite_removed": "The large store is removed; its small copy has not taken its place yet.",
    "state.rewrite_placed": "The small copy is the store; the folder that it was made in still exists.",
    "follow.batch_applied": "A follower has applied one batch of the changelog and can go on behind it.",
    # state/snapshots/: copies of stores on other storage
    "snapshot.copied": "A task's stores are copied locally, and its lock is let go; nothing is stored yet.",
    "snapshot.file_stored": "One file of a snapshot is stored; nobody knows of it yet.",
    "snapshot.written": "A snapshot can be seen; those that it replaces are still there.",
    "snapshot.dropped": "An old snapshot can't be seen any more; its files are still there.",
    "snapshot.file_deleted": "One file that no snapshot names is deleted, others may be left.",
    "snapshot.fetched": "The files of a snapshot are here and verified; the store is not made from them yet.",
    "snapshot.restored": "A store stands where its snapshot does; the rest of the changelog is not applied.",
}
"""Every failpoint and its meaning. To add one, add a line here and a ``hit`` at the step."""


class InjectedCrash(BaseException):  # not an error of the program: the end of it
    """What an armed failpoint raises. Not an ``Exception``: no handler may mistake it for a failure."""


Action: TypeAlias = "Literal['raise', 'kill', 'stop', 'torn', 'torn-raise'] | Callable[[], None]"
_ACTIONS: Final = ("raise", "kill", "stop", "torn", "torn-raise")


@dataclass(slots=True)
class Armed:
    """An armed failpoint: how often it was reached and whether it acted."""

    name: str
    action: Action
    skip: int = 0
    hits: int = 0
    fired: bool = False


@dataclass(frozen=True, slots=True)
class TornWrite:
    """An order to the durable layer: write a prefix of the next write, then :meth:`die`."""

    name: str
    then: Literal["raise", "kill"]

    def die(self) -> NoReturn:
        """End the process, or pretend to."""
        _die(self.name, self.then)


_armed: dict[str, Armed] = {}
_torn_writes: list[TornWrite] = []


def hit(name: str) -> None:
    """Mark that the step called ``name`` has been done.

    >>> hit("no.such.step")
    Traceback (most recent call last):
    ValueError: 'no.such.step' is not a failpoint. Remedy: add it to millstream.failpoints.REGISTRY.
    """
    if name not in REGISTRY:
        raise _unregistered(name)
    if _armed:
        point = _armed.get(name)
        if point is not None:
            _act(point)


@contextmanager
def armed(name: str, action: Action = "raise", *, skip: int = 0) -> Iterator[Armed]:
    """Arm ``name`` for the length of a ``with`` block; the first ``skip`` hits pass.

    >>> with armed("durable.linked", lambda: print("linked")):
    ...     hit("durable.linked")
    linked
    """
    point = _checked(name, action, skip)
    before = _armed.get(name)
    _armed[name] = point
    try:
        yield point
    finally:
        if before is None:
            del _armed[name]
        else:
            _armed[name] = before
        _torn_writes[:] = [torn for torn in _torn_writes if torn.name != name]


def take_torn_write() -> TornWrite | None:
    """Return the pending order to tear the next write, if there is one. For the durable layer only."""
    return _torn_writes.pop() if _torn_writes else None


def arm_from_environment(text: str) -> None:
    """Arm what ``MILLSTREAM_FAILPOINTS`` says: ``name=action`` or ``name=action@skip``, joined by commas."""
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, order = part.partition("=")
        action, _, skip = order.partition("@")
        if action not in _ACTIONS or not (skip or "0").isdigit():
            raise ValueError(
                f"{ENVIRONMENT_VARIABLE} says {part!r}, which is not of the form name=action@skip. "
                f"Remedy: use one of the actions {', '.join(_ACTIONS)}; '@skip' is optional."
            )
        _armed[name] = _checked(name, action, int(skip or 0))  # type: ignore[arg-type]  # checked just above


def _checked(name: str, action: Action, skip: int) -> Armed:
    if name not in REGISTRY:
        raise _unregistered(name)
    if not callable(action) and action not in _ACTIONS:
        raise ValueError(
            f"{action!r} is not an action of a failpoint. Remedy: use one of {', '.join(_ACTIONS)}."
        )
    return Armed(name, action, skip)


def _act(point: Armed) -> None:
    point.hits += 1
    if point.hits <= point.skip:
        return
    again, point.fired = point.fired, True
    if callable(point.action):
        point.action()
    elif again:
        pass  # a process dies once; what the test does next to recover must get through
    elif point.action in ("raise", "kill"):
        _die(point.name, point.action)
    elif point.action == "stop":
        _stop()
    else:
        _torn_writes.append(TornWrite(point.name, "kill" if point.action == "torn" else "raise"))


def _die(name: str, how: Literal["raise", "kill"]) -> NoReturn:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise InjectedCrash(name)


def _stop() -> None:
    with suppress(PermissionError):  # it leads a group already
        os.setsid()  # or the kernel would end or wake it when its parent dies
    os.kill(os.getpid(), signal.SIGSTOP)


def _unregistered(name: str) -> ValueError:
    return ValueError(f"{name!r} is not a failpoint. Remedy: add it to millstream.failpoints.REGISTRY.")


arm_from_environment(os.environ.get(ENVIRONMENT_VARIABLE, ""))
