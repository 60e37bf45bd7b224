"""Damage to any file of an application is recognised or harmless. It never gives another result.

Every third cut is tried (with MILLSTREAM_SOAK=1: every one); bit flips are random, and print the command that
repeats them. The log and all small files are the same on every backend; the local store of the flips is
RocksDB's, which has checksums.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.state.small_app import FastFiles, SmallApp, Tree

from millstream.errors import MillstreamError

SOAK = bool(os.environ.get("MILLSTREAM_SOAK"))
HARMLESS = "harmless"
"""What `outcome` says of damage that changed nothing."""
SHARDS = range(4)
FLIPS = 1_000 // len(SHARDS)
RECOGNISED = ("sealed file", "manifest", "witness", "lease", "renewal", "topic index")
"""Kinds of files that cannot be made again."""
UNREAD = ("LOG", "LOCK", "IDENTITY", "OPTIONS", "rocksdict-config")
"""What RocksDB writes for people: nobody reads it, and it is larger than all the rest."""


def app_with_a_past(root: Path, backend: str) -> SmallApp:
    """Three runs of an application, and input that a fourth will find."""
    app = SmallApp(root, backend, FastFiles())
    app.create()
    for words in ("to the", "to river to", "the"):
        app.append(*words.split())
        assert app.run() == app.expected()
    app.append("to", "sea")
    return app


def outcome(app: SmallApp, damage: str) -> str:
    """Start again and process the rest: the error's message, or harmless. Never another result."""
    try:
        found = app.run()
    except MillstreamError as error:
        return str(error)
    assert found == app.expected(), f"{damage}: silent"
    return HARMLESS


def last(folder: Path, pattern: str) -> Path:
    return max(folder.rglob(pattern))


def files_to_cut(app: SmallApp) -> dict[str, list[Path]]:
    segments = sorted((app.log_root / "topics").rglob("*.segment"))
    return {
        "sealed file": [last(app.log_root / "sealed", "0_0.*")],
        "manifest": [last(app.application_folder / "manifests", "*")],
        "witness": [app.application_folder / "HEAD"],
        "lease": [last(app.application_folder / "leases", "*[0-9]")],
        "renewal": [last(app.application_folder / "leases", "*.renewed")],
        "topic index": segments,
        "watermark": [segment.with_name("end") for segment in segments],
        "checkpoint": [app.task_folder / ".checkpoint"],
    }


def lengths(whole: bytes) -> range:
    """To which a file is cut; all of them in the soak, else from a random one on every third."""
    return range(len(whole)) if SOAK else range(random.SystemRandom().randrange(3), len(whole), 3)


@pytest.mark.parametrize("kind", RECOGNISED)
def test_a_file_cut_at_any_byte_is_recognised_and_named(tmp_path: Path, kind: str) -> None:
    app = app_with_a_past(tmp_path / "app", "lmdb")
    tree = Tree(app.root)
    for file in files_to_cut(app)[kind]:
        whole = file.read_bytes()
        for length in lengths(whole):
            tree.put_back()
            file.write_bytes(whole[:length])
            damage = f"{file} cut to {length} bytes"
            assert file.name in outcome(app, damage), damage
        # What was refused has changed nothing: with the file as it was, the application goes on.
        file.write_bytes(whole)
        assert outcome(app, "none") == HARMLESS
        tree.put_back()


@pytest.mark.parametrize("kind", ["watermark", "checkpoint"])
def test_a_file_that_can_be_made_again_may_be_cut_at_any_byte(tmp_path: Path, kind: str) -> None:
    app = app_with_a_past(tmp_path / "app", "lmdb")
    tree = Tree(app.root)
    for file in files_to_cut(app)[kind]:
        whole = file.read_bytes()
        for length in lengths(whole):
            file.write_bytes(whole[:length])
            damage = f"{file} cut to {length} bytes"
            assert outcome(app, damage) == HARMLESS, damage
            tree.put_back()


@pytest.mark.parametrize("kind", RECOGNISED)
def test_a_file_with_something_behind_its_end_is_recognised_or_harmless(tmp_path: Path, kind: str) -> None:
    app = app_with_a_past(tmp_path / "app", "lmdb")
    tree = Tree(app.root)
    for file in files_to_cut(app)[kind]:
        for extra in (b"\0", b"x" * 100, file.read_bytes()):
            file.write_bytes(tree.files[file] + extra)
            outcome(app, f"{file} with {len(extra)} more bytes")
            tree.put_back()


def test_every_deleted_file_is_recognised_or_harmless(tmp_path: Path) -> None:
    app = app_with_a_past(tmp_path / "app", "lmdb")
    tree = Tree(app.root)
    needed = files_to_cut(app)
    must_be_there = [
        *(needed["sealed file"] + needed["manifest"] + needed["witness"] + needed["topic index"]),
        *(app.application_folder / "manifests").iterdir(),
    ]
    for file in tree.files:
        file.unlink()
        result = outcome(app, f"{file} deleted")
        assert file not in must_be_there or result != HARMLESS, file
        tree.put_back()


def flips(rng: random.Random, files: list[Path]) -> Iterator[tuple[Path, int]]:
    """A file, whatever its size, and one of its bits."""
    for _ in range(FLIPS):
        file = rng.choice(files)
        yield file, rng.randrange(8 * file.stat().st_size)


@pytest.mark.parametrize("shard", SHARDS)
def test_a_thousand_flipped_bits_are_recognised_or_harmless(tmp_path: Path, shard: int) -> None:
    seed = os.environ.get("MILLSTREAM_SEED") or str(random.SystemRandom().randrange(2**32))
    program = f"pytest tests/state/test_damaged_files.py -k 'thousand and {shard}'"
    print(f"replay with: MILLSTREAM_SEED={seed} {program}")
    rng = random.Random(f"{seed}-{shard}")
    app = app_with_a_past(tmp_path / "app", "rocksdb")
    tree = Tree(app.root)
    files = [path for path, content in tree.files.items() if content and not path.name.startswith(UNREAD)]
    seen: Counter[str] = Counter()
    for file, bit in flips(rng, files):
        content = bytearray(tree.files[file])
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
        result = outcome(app, f"bit {bit % 8} of byte {bit // 8} of {file} flipped")
        seen[HARMLESS if result == HARMLESS else "recognised"] += 1
        tree.put_back()
    assert set(seen) == {HARMLESS, "recognised"}
    assert seen.total() == FLIPS
