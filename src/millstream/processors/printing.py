"""`print()`: each row as a line of text, for a look while developing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO


class PrintLine:
    """An action that writes `[label]: key, value` to a stream: standard output unless a file is given."""

    def __init__(self, label: str, file: TextIO | None, mapper: Callable[[Any, Any], Any] | None) -> None:
        self.label = label
        self.file = file
        self.mapper = mapper

    def __call__(self, key: Any, value: Any) -> None:
        """Print one record."""
        text = f"{key}, {value}" if self.mapper is None else self.mapper(key, value)
        print(f"[{self.label}]: {text}", file=self.file or sys.stdout)
