"""The types of keys and values where somebody may leave the serdes out: then they are bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

__all__ = ["K", "V"]

if TYPE_CHECKING:
    # Python 3.11 has no defaults of type variables at run time.
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
