"""Every exception that Millstream raises on purpose.

Catch :class:`MillstreamError` and you have caught them all::

    MillstreamError
    ├── ConfigError                 a setting is unknown, missing or contradicts another
    ├── TopologyError               the graph is wrong; found by build(), before any record flows
    ├── SerdeError                  values and bytes do not fit together
    │   ├── SerializationError      a value could not become bytes
    │   │   └── MixedTypesError     serdes.auto met a second type in one topic or store
    │   └── DeserializationError    bytes could not become a value
    ├── ProcessingError             a user's function raised
    ├── ProductionError             a result could not be written
    ├── InvalidTimestampError       a record's time is negative, or does not fit
    ├── LateRecordError             a record came when its windows had closed
    ├── StoreError                  a state store was misused or is damaged
    │   ├── UnknownStoreError       no store of that name is connected here
    │   └── StoreUnavailableError   nobody who has the state answers, or none that is fresh enough
    └── DriverClosedError           a TopologyTestDriver was used after it was closed

A message says three things: what happened (and where: topic, partition, offset, store, operator), the likely
cause, and the remedy. Each error takes its message as the only positional argument, so that it survives a
trip between processes.
"""

from __future__ import annotations


class MillstreamError(Exception):
    """Base class of every error in this module.

    >>> issubclass(UnknownStoreError, MillstreamError)
    True
    """


class ConfigError(MillstreamError):
    """A setting is unknown, missing or contradicts another one."""


class TopologyError(MillstreamError):
    """The topology is wrong. Raised by ``build()``, before any record flows."""


class SerdeError(MillstreamError):
    """Values and bytes do not fit together.

    ``topic``, ``partition``, ``offset`` and ``store`` say where, as far as it is known.

    >>> SerdeError("bad bytes", topic="orders", partition=3).topic
    'orders'
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        store: str | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.store = store


class SerializationError(SerdeError):
    """A value could not become bytes: usually it has another type than the serde takes."""


class MixedTypesError(SerializationError):
    """``serdes.auto`` learned one type for a topic or store and then met another one."""


class DeserializationError(SerdeError):
    """Bytes could not become a value: usually another serde wrote them."""


class ProcessingError(MillstreamError):
    """A user's function or processor raised."""


class ProductionError(MillstreamError):
    """A result could not be written to its topic."""


class InvalidTimestampError(MillstreamError):
    """A record's timestamp is negative, or does not fit."""


class LateRecordError(MillstreamError):
    """A record came when its windows had closed. Raised only if the late_record_handler says so."""


class StoreError(MillstreamError):
    """A state store was misused or is damaged."""


class UnknownStoreError(StoreError):
    """No state store of that name is connected to the processor or known to the application."""


class StoreUnavailableError(StoreError):
    """No host that has the state of a store has answered, or none whose state is fresh enough."""


class DriverClosedError(MillstreamError):
    """A ``TopologyTestDriver`` was used after it was closed."""
