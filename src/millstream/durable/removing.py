"""Deleting large files without holding up others.

To free the blocks of a large file is one transaction of the file system, and whoever syncs another file
meanwhile waits for it: 30 ms for half a gigabyte, where a sync takes half a millisecond otherwise. So a large
file is made shorter step by step before its name goes. What somebody else has by another name (a hard link)
stays as it is; who is just reading the file finds it too short, so this is for copies that can be had again.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from millstream.durable.actions import opened
from millstream.durable.layer import OS_FILES, FileLayer

STEP_BYTES: Final = 16 << 20
_BREAK_S: Final = 0.004


def remove_in_steps(path: Path, *, files: FileLayer = OS_FILES) -> None:
    """Delete a file."""
    with opened(path, os.O_WRONLY, files=files) as fd:
        size = files.size(fd)
        while size > STEP_BYTES and os.fstat(fd).st_nlink == 1:
            size -= STEP_BYTES
            files.truncate(fd, size)
            time.sleep(_BREAK_S)
    files.unlink(path)


def remove_tree_in_steps(folder: Path) -> None:
    """Delete a folder and all that is in it."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            remove_tree_in_steps(path)
        else:
            remove_in_steps(path)
    folder.rmdir()
