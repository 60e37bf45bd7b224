"""What can go wrong with a log: all are LogErrors."""

from __future__ import annotations

from millstream.errors import MillstreamError


class LogError(MillstreamError):
    """A topic could not be used as asked."""


class NoSuchLogError(LogError):
    """There is no log at that place."""


class UnknownTopicError(LogError):
    """No topic of that name, or no such partition of it."""


class TopicExistsError(LogError):
    """A topic of that name is there already."""


class InvalidTopicError(LogError):
    """A topic's name or its number of partitions can't be."""


class OffsetOutOfRangeError(LogError):
    """The range asked for was removed by retention, or has not been written yet. Never an empty answer."""


class RecordTooLargeError(LogError):
    """A record, a block or a batch is over its bound."""


class InvalidPublicationError(LogError):
    """A sealed range is not what its publisher says: nothing was published."""


class DamagedLogError(LogError):
    """Acknowledged bytes are not what was written. The message names file and position."""
