"""The setting `state_dir` as a host understands it: `{host}` and `{env:NAME}` are filled in there.

Hosts of a cluster may have their disks in different places. The coordinator sends the setting as it is, and
each process that runs tasks makes a folder of it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.errors import ConfigError

__all__ = ["absolute_state_dir", "check_state_dir", "state_dir_here", "state_dir_if_known"]

_BLANK: Final = re.compile(r"\{(host|env:([A-Za-z_][A-Za-z0-9_]*))\}")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def check_state_dir(state_dir: Path) -> None:
    """Refuse braces that are neither `{host}` nor `{env:NAME}`.

    >>> check_state_dir(Path("/mnt/{env:DISK}/state-{host}"))
    >>> check_state_dir(Path("/mnt/{user}"))
    Traceback (most recent call last):
    millstream.errors.ConfigError: state_dir is '/mnt/{user}', which has braces that mean nothing. ...
    """
    given = str(state_dir)
    left = _BLANK.sub("", given)
    if "{" in left or "}" in left:
        raise ConfigError(
            f"state_dir is {given!r}, which has braces that mean nothing. Remedy: write {{host}} for "
            "the name of the host, {env:NAME} for a variable of its environment, and no other braces."
        )


def absolute_state_dir(state_dir: Path) -> Path:
    """The setting for processes that have other working directories.

    One that begins with a variable stays as it is: that has to be the path of a folder.

    >>> absolute_state_dir(Path("{env:DISK}/state"))
    PosixPath('{env:DISK}/state')
    """
    return state_dir if str(state_dir).startswith("{env:") else state_dir.resolve()


def state_dir_if_known(state_dir: Path) -> Path | None:
    """The folder on this host; None if only the hosts that run tasks can say, as on a driver elsewhere.

    >>> state_dir_if_known(Path("{env:NO_SUCH_VARIABLE}/state")) is None
    True
    """
    try:
        return state_dir_here(state_dir)
    except ConfigError:
        return None


def state_dir_here(
    state_dir: Path, environment: Mapping[str, str] | None = None, host: str | None = None
) -> Path:
    """The folder on this host, for this process.

    >>> state_dir_here(Path("{env:DISK}/state-{host}"), {"DISK": "/mnt/nvme"}, "river.example")
    PosixPath('/mnt/nvme/state-river.example')
    """
    given = str(state_dir)
    variables = os.environ if environment is None else environment
    name = socket.gethostname() if host is None else host

    def filled(blank: re.Match[str]) -> str:
        variable = blank.group(2)
        if variable is None:
            if not _HOST_NAME.fullmatch(name) or ".." in name:
                raise ConfigError(
                    f"state_dir is {given!r}, but {name!r}, as this host calls itself, can't be a part "
                    "of a path. Remedy: use {env:NAME} with a variable of the host's environment."
                )
            return name
        if not variables.get(variable):
            raise ConfigError(
                f"state_dir is {given!r}, but the environment of process {os.getpid()} on host {name} "
                f"has no {variable}. Likely cause: it is set elsewhere only. Remedy: set it on all hosts, in "
                f"the environment of what starts Spark's executors, or with spark.executorEnv.{variable}."
            )
        return variables[variable]

    text = _BLANK.sub(filled, given)
    if text != given and not Path(text).is_absolute():
        raise ConfigError(
            f"state_dir is {given!r}, which on host {name} is {text!r}: not an absolute path. Remedy: "
            "give the whole path, beginning with '/'."
        )
    return Path(text)
