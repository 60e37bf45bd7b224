"""A child process is killed by SIGKILL at a named step; the parent finds the log in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.failpoints import ENVIRONMENT_VARIABLE
from millstream.log import FileLog

if TYPE_CHECKING:
    from tests.log.conftest import Kit

SOURCE = Path(__file__).parents[2] / "src"
CHILD = """
import sys
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.embedded.partition import Limits

log = FileLog(sys.argv[1], limits=Limits(segment_entries=2))
for n in range(10):
    log.append(TopicPartition("orders", 0), record_batch([None], [b"%d" % n], [n]))
    print(n, flush=True)
"""


@pytest.mark.parametrize(
    ("armed", "acknowledged", "found"),
    [
        ("log.locked=kill@4", 4, 4),
        ("log.locked=torn@3", 3, 3),
        ("log.frame_written=kill@4", 4, 5),
        ("log.frame_synced=kill@4", 4, 5),
        ("log.frame_synced=torn@4", 4, 5),
        ("log.watermark_written=kill@4", 4, 5),
        ("log.segment_created=kill@1", 4, 4),
        ("durable.file_written=kill", 2, 2),
        ("durable.linked=kill", 2, 2),
    ],
)
def test_what_was_acknowledged_is_there_and_the_rest_is_whole_or_absent(
    kit: Kit, log: FileLog, armed: str, acknowledged: int, found: int
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), ENVIRONMENT_VARIABLE: armed}
    command = [sys.executable, "-c", CHILD, str(kit.root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert len(done.stdout.splitlines()) == acknowledged
    expected = [b"%d" % n for n in range(found)]
    for reader in (kit.open(), kit.open(), log):
        assert kit.values(reader) == expected
    assert log.append(kit.orders, kit.batch("more")).base_offset == found
    assert not list((kit.root / "topics" / "orders" / "0").glob(".*"))
