"""`rocksdb_config_setter`: from what a user wrote to a function that is given each store's options.

It travels to Spark's workers inside the configuration, so it is a function at the top of a module, a class
with a method ``set_config`` (as Kafka's ``RocksDBConfigSetter``), or the dotted name of either.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import isclass
from typing import Any

from millstream.errors import ConfigError

ConfigSetter = Callable[[str, Any, Any], None]
"""Gets a store's name, its `rocksdict.Options` and `rocksdict.BlockBasedOptions`, and may change them."""


def config_setter(choice: object) -> ConfigSetter | None:
    """The function that a setting stands for; None stands for none.

    >>> config_setter("shop.tuning.no_compression")
    Traceback (most recent call last):
    millstream.errors.ConfigError: rocksdb_config_setter is 'shop.tuning.no_compression', which can't be ...
    """
    found = _imported(choice) if isinstance(choice, str) else choice
    if isclass(found):
        found = getattr(found(), "set_config", None)
    if found is None and choice is None:
        return None
    if not callable(found):
        raise ConfigError(
            f"rocksdb_config_setter is {choice!r}, which can't be called. Remedy: give a function that takes "
            "a store's name, its Options and its BlockBasedOptions, a class with such a method set_config, "
            "or the dotted name of one of them."
        )
    return found


def _imported(name: str) -> object:
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"rocksdb_config_setter is {name!r}, which can't be imported ({error}). Remedy: give the dotted "
            "name of a function or class in a module that every worker can import."
        ) from error
