"""Spark's classes, loaded and checked once for all: an archive that the JVM maps into memory at its start.

Java calls it class data sharing. It takes about half of the work out of a start of Spark. The archive is
written by the JVM of a short run when it ends, in the background, once per user, Java and Spark; every later
start uses it. Java itself checks that it fits (version, class path) and does without it if not, silently.

Nobody has to know of it: without it everything is the same, only slower.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from millstream.durable import check_private_folder
from millstream.errors import MillstreamError

_SILENTLY: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_LONGEST_WRITE_S: Final = 600
_MAGIC_BYTES: Final = 4


def archive_options(home: Path, java: Path, given: str, *, is_short_run: bool) -> str:
    """Options that make a JVM use the archive in a folder of ours; a short run writes it if there is none.

    Nothing if your options (`given`) decide about sharing themselves, or Java can't do it.
    """
    if "-Xshare" in given or "SharedArchive" in given or "ArchiveClasses" in given:
        return ""
    archive = home / f"spark-{_spark_digest()}.jsa"
    try:
        check_private_folder(home)
        if _is_whole(archive):
            return f'"-XX:SharedArchiveFile={archive}" {_SILENTLY}'
        if is_short_run and _has_base_archive(java) and _is_free(archive):
            return f'"-XX:ArchiveClassesAtExit={archive}" {_SILENTLY}'
    except (OSError, MillstreamError):  # not worth a failed start
        return ""
    return ""


def _is_whole(archive: Path) -> bool:
    """Java writes the header last, so one that was not finished begins with zeros."""
    with suppress(FileNotFoundError), archive.open("rb") as file:
        return any(file.read(_MAGIC_BYTES))
    return False


def _is_free(archive: Path) -> bool:
    """Whether nobody is writing it; what somebody has left unfinished long ago is removed."""
    with suppress(FileNotFoundError):
        if time.time() - archive.stat().st_mtime < _LONGEST_WRITE_S:
            return False
        archive.unlink()
    return os.access(archive.parent, os.W_OK)


def _has_base_archive(java: Path) -> bool:
    """Whether this Java came with an archive of its own classes, on which ours would be built."""
    return (java.resolve().parents[1] / "lib" / "server" / "classes.jsa").is_file()


def _spark_digest() -> str:
    """Names the Spark that is installed here."""
    spec = find_spec("pyspark")
    places = (
        [] if spec is None or spec.submodule_search_locations is None else spec.submodule_search_locations
    )
    told = [f"{place}:{Path(place, 'version.py').stat().st_mtime_ns}" for place in places]
    return hashlib.sha256(f"{told}{os.environ.get('SPARK_HOME', '')}".encode()).hexdigest()[:12]
