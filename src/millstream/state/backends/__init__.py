"""Backends: where the bytes of a store are kept. ``memory``, ``rocksdb``, ``lmdb``, or one of the user's own.

:func:`supplier` turns what a user wrote into an object that opens stores. A backend's library is imported
when it is first asked for, and only by its own module.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from millstream.config import BACKENDS, check_backend
from millstream.errors import ConfigError
from millstream.state.backends.api import Backend, BackendSupplier, Entry, KeyRange, Row, StoreSize
from millstream.state.backends.config_setter import config_setter

__all__ = ["NAMES", "Backend", "BackendSupplier", "Entry", "KeyRange", "Row", "StoreSize", "supplier"]

_SUPPLIERS: Final = {
    "lmdb": "LmdbSupplier",
    "memory": "MemorySupplier",
    "rocksdb": "RocksDbSupplier",
}
NAMES: Final = BACKENDS
"""The backends that can be chosen by name; each lives in the module of that name."""


def supplier(choice: str | BackendSupplier, *, rocksdb_config_setter: object = None) -> BackendSupplier:
    """Return the supplier that a name stands for; a supplier object stands for itself.

    The setter is for RocksDB, if that is chosen by its name: see :mod:`.config_setter`.

    >>> supplier("memory").persistent
    False
    >>> supplier("leveldb")
    Traceback (most recent call last):
    millstream.errors.ConfigError: There is no state backend 'leveldb'. Remedy: use one of lmdb, memory, ...
    """
    if not isinstance(choice, str):
        if not isinstance(choice, BackendSupplier):
            raise ConfigError(
                f"{choice!r} is not a state backend. Remedy: use one of {', '.join(NAMES)}, or an object "
                "with name, persistent, open(path) and restore(snapshot, path), as "
                "millstream.state.backends.BackendSupplier says."
            )
        return choice
    check_backend(choice)
    settings = {"config_setter": config_setter(rocksdb_config_setter)} if choice == "rocksdb" else {}
    try:
        module = import_module(f"{__name__}.{choice}")
    except ImportError as error:
        raise ConfigError(
            f"The state backend {choice!r} cannot be loaded ({error}). Likely cause: its library is not "
            "installed for this interpreter. Remedy: install millstream with its dependencies, or choose "
            "another backend."
        ) from error
    made: BackendSupplier = getattr(module, _SUPPLIERS[choice])(**settings)
    return made
