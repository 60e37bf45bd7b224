"""What can be had as a table: as Arrow, Polars, pandas or Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from millstream.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


def frame_of(table: pa.Table) -> pl.DataFrame:
    """A table for Polars."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)  # a table is no column
    return frame


def pandas_of(table: pa.Table) -> pd.DataFrame:
    """A table for pandas, or the remedy if there is none."""
    if find_spec("pandas") is None:
        raise ConfigError(
            "to_pandas() needs pandas, which is not installed. Remedy: pip install 'millstream[pandas]'; or "
            "use to_polars() or to_arrow(), which need nothing more."
        )
    frame: pd.DataFrame = table.to_pandas()
    return frame


class Tabular(ABC):
    """Something that Arrow can show as a table. Subclasses say how, and what the options mean."""

    @abstractmethod
    def to_arrow(self, **options: Any) -> pa.Table:
        """The rows as an Arrow table."""

    def to_polars(self, **options: Any) -> pl.DataFrame:
        """The same as a Polars frame."""
        return frame_of(self.to_arrow(**options))

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The same as a pandas frame; pandas is an extra: ``pip install 'millstream[pandas]'``."""
        return pandas_of(self.to_arrow(**options))
