"""A process is killed while it writes: what write() returned for is there, and every write is whole.

Twice over: before every call into a library that Python can see, one after the other; and at random points of
time, which also hits the inside of the libraries.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.state.backends import BackendSupplier, supplier

PERSISTENT = ["lmdb", "rocksdb"]
SMALL = sorted(
    [b"", b"\0", *(b"small-%02d" % n for n in range(40)), *(b"long" * 300 + b"%d" % n for n in range(3))]
)
LARGE = [b"%05d" % n for n in range(6000)]

WRITER = """
import os, pathlib, sys
from millstream.state.backends import supplier
small, large = eval(sys.argv[3]), [b"%05d" % n for n in range(6000)]
with supplier(sys.argv[1]).open(pathlib.Path(sys.argv[2])) as store:
    number = int(store.marker() or b"0")
    while True:
        number += 1
        new = b"%d" % number
        keys = small + (large if number % 3 == 0 else [])
        only = [(b"only-%d" % (number - 1), None), (b"only-%d" % number, new)]
        entries = [(key, new) for key in keys] + only
        (store.bulk_load if number % 2 else store.write)(sorted(entries), marker=new)
        os.write(1, new + b"\\n")
"""

# It forks before anything is open: RocksDB's threads would not survive a fork.
STEPPER = """
import os, pathlib, shutil, signal, sys
from millstream.state.backends import supplier
backend, folder, method = supplier(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
old, new = map(eval, sys.argv[4:])

def forked(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]

def prepare():
    with backend.open(folder / "before") as store:
        store.write(old, marker=b"old")

def write_and_die(step):
    seen = 0
    def count(frame, event, argument):
        nonlocal seen
        seen += event == "c_call"
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
    store = backend.open(folder / str(step))
    sys.setprofile(count)
    getattr(store, method)(new, marker=b"new")
    sys.setprofile(None)
    os._exit(0)

assert forked(prepare) == 0
for step in range(1, 1000):
    shutil.copytree(folder / "before", folder / str(step))
    if forked(lambda: write_and_die(step)) == 0:
        break
"""


@pytest.mark.parametrize("method", ["write", "bulk_load"])
@pytest.mark.parametrize("name", PERSISTENT)
def test_killed_at_any_step_of_a_write_a_store_has_all_of_it_or_nothing(
    name: str, method: str, tmp_path: Path
) -> None:
    long = b"long" * 300
    old = [(b"", b"1"), (b"a", b"1"), (b"b", b"1"), (long, b"1")]
    new = [(b"", b"2"), (b"a", None), (b"c", b"2"), (long, None), (long + b"er", b"2")]
    after = [(b"", b"2"), (b"b", b"1"), (b"c", b"2"), (long + b"er", b"2")]
    tmp_path.chmod(0o700)
    _run(STEPPER, name, str(tmp_path), method, repr(old), repr(new))
    outcomes = []
    for step in range(1, len(list(tmp_path.iterdir()))):
        with supplier(name).open(tmp_path / str(step)) as store:
            outcomes.append((store.marker(), list(store.scan())))
    unchanged = outcomes.index((b"new", after))
    assert unchanged > 10
    assert [(b"old", old)] * unchanged == outcomes[:unchanged]
    assert [(b"new", after)] * (len(outcomes) - unchanged) == outcomes[unchanged:]


@pytest.mark.parametrize("name", PERSISTENT)
def test_killed_at_random_a_store_is_whole_and_has_all_that_was_acknowledged(
    name: str, tmp_path: Path
) -> None:
    backend, seed = supplier(name), random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(4):
        acknowledged = _write_until_killed(name, tmp_path / "store", chance)
        _check_whole(backend, tmp_path / "store", acknowledged)


def _write_until_killed(name: str, path: Path, chance: random.Random) -> int:
    acknowledged = 0
    command = [sys.executable, "-c", WRITER, name, str(path), repr(SMALL)]
    with subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(chance.randint(3, 30)):
            acknowledged = int(writer.stdout.readline())
        until = time.perf_counter() + chance.random() * 0.03  # somewhere in the next write or two
        while time.perf_counter() < until:
            pass
        writer.kill()
        return max([acknowledged, *map(int, writer.stdout.read().splitlines())])


def _check_whole(backend: BackendSupplier, path: Path, acknowledged: int) -> None:
    with backend.open(path) as store:
        marker = store.marker()
        assert marker is not None
        version = int(marker)
        assert acknowledged <= version <= acknowledged + 1
        assert [marker] * len(SMALL) == store.get_many(SMALL)
        assert [b"%d" % (version - version % 3)] * len(LARGE) == store.get_many(LARGE)
        assert [(b"only-" + marker, marker)] == list(store.scan(b"only-", b"only."))


def _run(program: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", program, *arguments], env=_environment(), check=True)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
