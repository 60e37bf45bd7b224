"""A terminal for tests: a command runs in a pseudo-terminal, and what its screen shows is read back."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

SOURCE = Path(__file__).parents[2] / "src"
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
_LONGEST_S = 120


class Terminal:
    """One command in a terminal of 40 lines with 120 columns."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.shown = ""
        self._pid, self._master = pty.fork()
        if self._pid == 0:  # in the child
            os.chdir(folder)
            os.environ.update(
                PYTHONPATH=os.pathsep.join([str(SOURCE), str(folder)]),
                TERM="xterm",
                COLUMNS="120",
                LINES="40",
            )
            os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - our own program
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._master)

    def wait_for(self, pattern: str) -> None:
        """Read until the screen has shown what fits a pattern, at any moment."""
        while not re.search(pattern, self.plain) and self._read():
            pass
        assert re.search(pattern, self.plain), self.plain

    def press(self, keys: str) -> None:
        """Type something."""
        os.write(self._master, keys.encode())

    def end(self) -> int:
        """Read to the end; returns the status."""
        while self._read():
            pass
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    @property
    def plain(self) -> str:
        """All that was ever written, without control characters."""
        return _CONTROL.sub("", self.shown).replace("\r", "")

    @property
    def screen(self) -> list[str]:
        """The lines that the screen shows now, as a terminal draws them."""
        lines = [""]
        row = column = position = 0
        while position < len(self.shown):
            found = _CONTROL.match(self.shown, position)
            if found is not None:
                number = int(found[1]) if found[1].isdigit() else 1
                if found[2] == "A":
                    row = max(0, row - number)
                elif found[2] == "K":
                    lines[row] = "" if found[1] == "2" else lines[row][:column]
                position = found.end()
                continue
            character = self.shown[position]
            position += 1
            if character == "\n":
                row, column = row + 1, 0
                if row == len(lines):
                    lines.append("")
            elif character == "\r":
                column = 0
            else:
                line = lines[row].ljust(column)
                lines[row] = line[:column] + character + line[column + 1 :]
                column += 1
        return [line.rstrip() for line in lines if line.strip()]

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], _LONGEST_S)
        assert ready, f"nothing for {_LONGEST_S} s; so far: {self.plain}"
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the child has closed its end
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
