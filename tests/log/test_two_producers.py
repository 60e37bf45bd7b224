"""Two processes append to one partition at once and are killed at random, again and again.

No acknowledged record is lost, and no offset is given twice. Run again with the seed that was printed:
``MILLSTREAM_SEED=... pytest tests/log/test_two_producers.py``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.log import FileLog
from millstream.types import Offset

if TYPE_CHECKING:
    from tests.log.conftest import Kit

SOURCE = Path(__file__).parents[2] / "src"
KILLS = 5
PRODUCER = """
import sys
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.embedded.partition import Limits

log = FileLog(sys.argv[1], limits=Limits(segment_entries=7))
n = 0
while True:
    values = [f"{sys.argv[2]} {n + i}".encode() for i in range(n % 4 + 1)]
    batch = record_batch([None] * len(values), values, [0] * len(values))
    result = log.append(TopicPartition("orders", 0), batch)
    for i, value in enumerate(values):
        print(result.base_offset + i, value.decode(), flush=i == len(values) - 1)
    n += len(values)
"""


def produce_and_be_killed(root: Path, name: str, rng: random.Random, acknowledged: dict[int, bytes]) -> None:
    """Run a producer, take its acknowledgements, kill it after some; several times."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    for life in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-c", PRODUCER, str(root), f"{name}.{life}"],
            env=environment,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            deadly = rng.randrange(1, 120)
            for count, line in enumerate(process.stdout):
                if not line.endswith(b"\n"):
                    break  # it died while it told us
                offset, _, value = line.rstrip(b"\n").partition(b" ")
                assert int(offset) not in acknowledged, "an offset was given twice"
                acknowledged[int(offset)] = value
                if count == deadly:
                    process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL


def test_no_acknowledged_record_is_lost_and_no_offset_is_given_twice(kit: Kit, log: FileLog) -> None:
    seed = os.environ.get("MILLSTREAM_SEED") or str(random.SystemRandom().randrange(2**32))
    print(f"replay with MILLSTREAM_SEED={seed}")
    acknowledged: dict[int, bytes] = {}
    threads = [
        threading.Thread(
            target=produce_and_be_killed, args=(kit.root, name, random.Random(f"{seed}{name}"), acknowledged)
        )
        for name in ("one", "two")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    found = kit.values(kit.open(), start=0)
    assert len(acknowledged) > 50
    assert {offset: found[offset] for offset in acknowledged} == acknowledged
    assert len(found) == len(set(found)), "a record is there twice"
    values = [value or b"" for value in found]
    for life in {value.split()[0] for value in values}:
        numbers = [int(value.split()[1]) for value in values if value.split()[0] == life]
        assert numbers == list(range(len(numbers))), "records of one producer are out of order"
    assert log.append(kit.orders, kit.batch("more")).base_offset == Offset(len(found))
