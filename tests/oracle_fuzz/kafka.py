"""Kafka's side: one JVM for many cases, a line of JSON to it and a line back for each."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.oracle_fuzz.results import Results
from tests.oracle_fuzz.spec import Case

ORACLE = Path(__file__).parent.parent / "oracle"
CLASSES = ORACLE / "target" / "classes"
CLASS_PATH = ORACLE / "target" / "classpath"
"""Written by `make fuzz-oracle`: where Maven has put the libraries."""
MAIN_CLASS = "millstream.oracle.fuzz.Fuzz"
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - Linux has it, others do without
_LINE = 1 << 16


def missing() -> str | None:
    """Why Kafka's side can't be run here, or None."""
    if shutil.which("java") is None:
        return "there is no java"
    if not CLASS_PATH.exists() or not (CLASSES / (MAIN_CLASS.replace(".", "/") + ".class")).exists():
        return "tests/oracle is not compiled: make fuzz-oracle N=1 does it"
    return None


class Kafka:
    """Kafka Streams' own test driver, in a process of its own. A context manager."""

    def __init__(self) -> None:
        reason = missing()
        if reason is not None:
            raise FileNotFoundError(reason)
        class_path = f"{CLASSES}:{CLASS_PATH.read_text().strip()}"
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", class_path]
        if _IN_MEMORY.is_dir():  # stores are many and short-lived: no disk has to be waited for
            command.append(f"-Djava.io.tmpdir={_IN_MEMORY}")
        self._process = subprocess.Popen(
            [*command, MAIN_CLASS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=_LINE
        )

    def play(self, case: Case) -> Results:
        """What Kafka makes of a case."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.loads(case.to_json()) | {"keys": keys_of(case), "times": times_of(case)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the JVM has ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "crash" in answer:
            raise RuntimeError(f"the JVM can't play this: {answer['crash']}")
        stores = {name: sorted(rows, key=repr) for name, rows in answer.get("stores", {}).items()}
        return Results(
            refused=answer.get("refused"),
            topology=answer.get("topology", ""),
            actions=answer.get("actions", []),
            error=answer.get("error"),
            stores=stores,
        )

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def keys_of(case: Case) -> list[str]:
    """The keys to ask versioned stores for."""
    given = {action["key"] for action in case.actions if action.get("key") is not None}
    return sorted(given | {f"k{number}" for number in range(4)})


def times_of(case: Case) -> list[int]:
    """The times to ask versioned stores for: some of those of the records, and between them."""
    times = sorted({action["at"] for action in case.actions if "at" in action})
    return sorted({time + more for time in times[:: max(1, len(times) // 8)] for more in (-1, 0, 1)})
