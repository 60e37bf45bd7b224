"""Polars, imported when the first of its names is used: programs without a column don't pay for it.

For types and editors it is Polars itself::

    if TYPE_CHECKING:
        import polars as pl
    else:
        from millstream.processors.columns import lazy_polars as pl
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    import polars as pl  # noqa: PLC0415 - that is what this is for

    found = globals()[name] = getattr(pl, name)
    return found
