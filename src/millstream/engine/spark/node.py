"""Where a worker process is: the host, and its tags."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

from millstream.config import TAG_PREFIX

_SAME_MACHINE: Final = "127."


def node_name(environment: Mapping[str, str] | None = None) -> str:
    """The name of this host, as Spark was told it; several loopback addresses are several hosts.

    >>> node_name({"SPARK_LOCAL_HOSTNAME": "river"})
    'river'
    >>> node_name({"SPARK_LOCAL_IP": "127.0.0.3"})
    '127.0.0.3'
    """
    given = os.environ if environment is None else environment
    address = given.get("SPARK_LOCAL_IP", "")
    if address.startswith(_SAME_MACHINE):
        return address
    return given.get("SPARK_LOCAL_HOSTNAME") or socket.gethostname()


def tags_here(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tags of this host: variables MILLSTREAM_TAG_<NAME> of the process that runs tasks.

    >>> tags_here({"MILLSTREAM_TAG_ZONE": "eu-1", "PATH": "/bin"})
    {'zone': 'eu-1'}
    """
    given = os.environ if environment is None else environment
    return {
        name.removeprefix(TAG_PREFIX).lower(): value
        for name, value in sorted(given.items())
        if name.startswith(TAG_PREFIX)
    }
