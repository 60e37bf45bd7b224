"""The command as a process: pipes, signals, a terminal."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from millstream.cli.lines import MAX_LINE_BYTES, read_lines
from millstream.cli.progress import progress_bar
from millstream.log import FileLog
from millstream.log.errors import RecordTooLargeError

SOURCE = Path(__file__).parents[2] / "src"
COMMAND = [sys.executable, "-c", "from millstream.cli.main import main; main()"]


def start(folder: Path, *words: str, unbuffered: bool = False) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*COMMAND, *words], cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
    )


def run(folder: Path, *words: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    with start(folder, *words) as process:
        out, err = process.communicate(stdin, 60)
    return process.returncode, out, err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FileLog(tmp_path / "millstream-data").create_topic("lines")
    return tmp_path


@pytest.fixture
def follower(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with start(folder, "topics", "consume", "lines", "--follow", "--from-beginning") as process:
        yield process
        process.kill()


def test_a_pipe_goes_in_and_a_pipe_comes_out(folder: Path) -> None:
    lines = b"".join(b"%d\n" % i for i in range(50_000))
    status, out, err = run(folder, "topics", "produce", "lines", stdin=lines)
    assert (status, out) == (0, b"")
    assert b"Appended 50,000 records to 'lines'" in err
    assert b"\x1b" not in err
    assert run(folder, "topics", "consume", "lines") == (0, lines, b"")


def test_an_error_is_a_message_and_a_status(folder: Path) -> None:
    status, out, err = run(folder, "topics", "consume", "nope")
    assert (status, out) == (1, b"")
    assert err.startswith(b"Error: There is no topic 'nope'")
    status, _, err = run(folder, "topics", "frobnicate")
    assert status == 2
    assert b"No such command 'frobnicate'" in err
    assert run(folder)[0] == 2
    assert run(folder, "--help")[0] == 0


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_slow_reader_gets_everything(folder: Path, unbuffered: bool) -> None:
    text = b"".join(b"%d\n" % i for i in range(100_000))
    run(folder, "topics", "produce", "lines", stdin=text)
    with start(folder, "topics", "consume", "lines", unbuffered=unbuffered) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        assert process.stdout.read() == text.removeprefix(b"0\n")
    assert process.returncode == 0


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_reader_that_goes_away_is_no_error(folder: Path, unbuffered: bool) -> None:
    run(folder, "topics", "produce", "lines", stdin=b"".join(b"%d\n" % i for i in range(100_000)))
    with start(folder, "topics", "consume", "lines", unbuffered=unbuffered) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_follower_shows_what_is_appended_meanwhile_until_ctrl_c(
    folder: Path, follower: subprocess.Popen[bytes]
) -> None:
    run(folder, "topics", "produce", "lines", stdin=b"a\n")
    assert follower.stdout is not None
    assert follower.stderr is not None
    assert follower.stdout.readline() == b"a\n"
    run(folder, "topics", "produce", "lines", stdin=b"b\n")
    assert follower.stdout.readline() == b"b\n"
    follower.send_signal(signal.SIGINT)
    assert follower.stderr.read() == b""
    assert follower.wait(60) == 130


def test_a_slow_source_s_lines_are_appended_as_they_come(
    folder: Path, follower: subprocess.Popen[bytes]
) -> None:
    assert follower.stdout is not None
    with start(folder, "topics", "produce", "lines") as process:
        assert process.stdin is not None
        for line in (b"first\n", b"second\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert follower.stdout.readline() == line


def test_a_terminal_gets_a_bar_with_rate_and_time_left() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    with progress_bar("orders.txt", 100, console) as advance:
        advance(size=40, records=1_234)
        advance(size=60, records=766)
    shown = output.getvalue()
    assert "orders.txt" in shown
    assert "100%" in shown
    assert "2,000 records" in shown
    assert "/s" in shown
    assert "0:00:0" in shown


@pytest.mark.parametrize(("is_terminal", "total"), [(False, 100), (True, None), (True, 0)])
def test_without_a_terminal_or_a_total_there_is_no_bar(is_terminal: bool, total: int | None) -> None:
    output = io.StringIO()
    with progress_bar("x", total, Console(file=output, force_terminal=is_terminal)) as advance:
        advance(size=40, records=1)
    assert output.getvalue() == ""


def test_a_line_without_end_is_bounded() -> None:
    with pytest.raises(RecordTooLargeError, match="A line is longer than 16777216 bytes"):
        list(read_lines(io.BytesIO(bytes(MAX_LINE_BYTES + 10))))
