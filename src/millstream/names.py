"""What topics may be called: rules that the log, topologies and settings share."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HOW_TO_NAME", "is_topic_name"]

HOW_TO_NAME: Final = "use letters, digits, '.', '_' and '-', at most 249 of them, and no '.' at the beginning"
_TOPIC: Final = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,248}")


def is_topic_name(given: object) -> bool:
    """Whether a topic can have this name: it also names a folder.

    >>> is_topic_name("orders.eu"), is_topic_name("../orders"), is_topic_name("..")
    (True, False, False)
    """
    return isinstance(given, str) and _TOPIC.fullmatch(given) is not None
