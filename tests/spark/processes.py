"""Child processes and everything that they start: watched, stopped and killed by process id."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.spark.lab import Lab

LONGEST_S = float(os.environ.get("TEST_PATIENCE_S", "180"))
_FIRST_STEP_S = 0.01
_LONGEST_STEP_S = 0.1
"""To look at all processes takes milliseconds: who waits for long looks less often."""
_LOOK_EVERY_S = 0.2
FAREWELL = re.compile(
    r"Traceback \(most recent call last\):\n(?:  .*\n)*?"
    r".*pyspark/daemon\.py.*\n(?:  .*\n)*BrokenPipeError.*\n"
)
"""What a worker of Spark says now and then whose JVM was faster to end."""


def until(condition: Callable[[], bool], what: str, said: Callable[[], str] = str) -> None:
    """Wait for a condition, not for ever. `said` has more to say if it was in vain."""
    deadline, step_s = time.monotonic() + LONGEST_S, _FIRST_STEP_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for this: {what}\n{said()}"
        time.sleep(step_s)
        step_s = min(1.2 * step_s, _LONGEST_STEP_S)


def processes() -> dict[int, tuple[int, str]]:
    """All processes: parent and time of start, by id."""
    found: dict[int, tuple[int, str]] = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208 - asked very often
        with suppress(OSError):
            fields = _fields(pid)
            if fields[0] != "Z":
                found[pid] = (int(fields[1]), fields[19])
    return found


def is_stopped(pid: int) -> bool:
    """True for a process that SIGSTOP has stopped."""
    with suppress(OSError):
        return _fields(pid)[0] == "T"
    return False


def _fields(pid: int) -> list[str]:
    """What the kernel knows of a process, from its state on."""
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        stat = os.read(file, 4096)
    finally:
        os.close(file)
    return stat.decode(errors="replace").rsplit(")", 1)[1].split()


def descendants(pid: int) -> dict[int, str]:
    """The processes that a process has started, they and theirs, with their times of start."""
    everybody = processes()
    found: dict[int, str] = {}
    parents = {pid}
    while parents:
        children = {child: born for child, (parent, born) in everybody.items() if parent in parents}
        found.update(children)
        parents = set(children)
    return found


class Child:
    """An application in a child process. Leaving the `with` block leaves no process behind."""

    def __init__(
        self,
        lab: Lab,
        program: str,
        *,
        failpoints: str = "",
        worker_failpoints: str = "",
        environment: Mapping[str, str] | None = None,
        until_caught_up: bool = True,
        jvm_kills: Sequence[str] = (),
        session: Mapping[str, str] | None = None,
        slots_are_elsewhere: bool = False,
        standby: bool = False,
        **settings: Any,
    ) -> None:
        order = {
            "folder": str(lab.folder),
            "program": program,
            "settings": settings,
            "worker_failpoints": worker_failpoints,
            "until_caught_up": until_caught_up,
            "jvm_kills": jvm_kills,
            "session": session,
            "slots_are_elsewhere": slots_are_elsewhere,
            "standby": standby,
        }
        self.output = lab.folder / f"child-{time.monotonic_ns()}.txt"
        with self.output.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.child", json.dumps(order)],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {}), "MILLSTREAM_FAILPOINTS": failpoints},
            )
        self._seen: dict[int, str] = {}
        self._next_look = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def is_running(self) -> bool:
        """Looks at the process tree, too: what a dead driver leaves behind is found only by memory."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_EVERY_S
            self._seen.update(descendants(self.pid))
        return self._process.poll() is None

    def wait(self) -> int:
        until(lambda: not self.is_running(), "the end of the child process")
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill_one(self, pid: int) -> None:
        """SIGKILL one of the processes that the child has started."""
        assert pid in descendants(self.pid)
        os.kill(pid, signal.SIGKILL)

    def workers(self) -> list[int]:
        """The Python workers of its Spark: those that a daemon has forked."""
        everybody = processes()
        below = descendants(self.pid)
        return [pid for pid in below if pid in everybody and _is_forked(pid, everybody[pid][0])]

    def wait_for_a_stopped_worker(self) -> int:
        """Wait until a process that the child has started stands still; its id."""

        def stopped() -> list[int]:
            self._seen.update(family := descendants(self.pid))
            return [pid for pid in family if is_stopped(pid)]

        self.wait_for(lambda: bool(stopped()), "a worker stands still")
        return stopped()[0]

    def kill_all_but(self, spared: int) -> None:
        """SIGKILL the process and all that it has started, except one."""
        self.signal(signal.SIGSTOP)  # it must not see the others go
        family = {pid: born for pid, born in descendants(self.pid).items() if pid != spared}
        kill_family(family)
        self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL the process and all that it has started."""
        self._seen.update(descendants(self.pid))
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._seen.update(descendants(self.pid))
        kill_family(self._seen)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something while the child runs; its words are shown if it ends before."""

        def met_or_over() -> bool:
            return condition() or not self.is_running()

        until(met_or_over, what, self.said)
        assert condition(), f"the child ended before {what}:\n{self.said()}"


def alive(family: Mapping[int, str]) -> list[int]:
    """Those of some processes that have not ended."""
    everybody = processes()
    return [pid for pid, born in family.items() if everybody.get(pid, (0, ""))[1] == born]


def command_of(pid: int) -> bytes:
    """With what a process was started."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_forked(pid: int, parent: int) -> bool:
    return b"daemon" in command_of(pid) and command_of(pid) == command_of(parent)


def kill_family(family: Mapping[int, str]) -> None:
    """SIGKILL processes, if they are still those that were born at these times."""
    for pid, born in family.items():
        if processes().get(pid, (0, ""))[1] == born:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
