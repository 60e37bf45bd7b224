"""Millstream: stateful streams in Python, run by Spark, with Kafka Streams' programming model.

The whole library in one sentence: a topology is data; a task is a pure function from (records of epoch N,
stores at version N-1) to (outputs, stores at version N); an engine decides when and where tasks run.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from millstream import errors, handlers, serdes, timestamps
from millstream.config import StreamsConfig
from millstream.dsl.branched import BranchedKStream
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.cogrouped import CogroupedKStream
from millstream.dsl.grouped import KGroupedStream
from millstream.dsl.grouped_table import KGroupedTable
from millstream.dsl.kstream import KStream
from millstream.dsl.ktable import GlobalKTable, KTable
from millstream.dsl.session_windowed import SessionWindowedKStream
from millstream.dsl.windowed import TimeWindowedKStream
from millstream.dsl.windowed_cogrouped import SessionWindowedCogroupedKStream, TimeWindowedCogroupedKStream
from millstream.kafka_names import missing_class
from millstream.processors.api import (
    Cancellable,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    Processor,
    ProcessorContext,
    PunctuationType,
    ValueTransformerWithKey,
)
from millstream.record import (
    FixedKeyRecord,
    Record,
    RecordMetadata,
    ValueAndTimestamp,
    VersionedRecord,
    Window,
    Windowed,
)
from millstream.state import specs as stores
from millstream.state.specs import Store, StoreBuilder
from millstream.state.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.list_value import ListValueStore
from millstream.state.stores.read_only import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedKeyValueStore,
    ReadOnlyWindowStore,
)
from millstream.state.stores.session import SessionStore
from millstream.state.stores.time_buffer import Buffered, TimeOrderedBuffer
from millstream.state.stores.versioned import VersionedKeyValueStore
from millstream.state.stores.window import TimestampedWindowStore, WindowStore
from millstream.suppressed import Suppressed
from millstream.topology.topology import Topology
from millstream.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

if TYPE_CHECKING:
    from millstream.app import Answer, State, Streams
    from millstream.consumer import Consumer
    from millstream.dsl.columns import key, other, timestamp, value
    from millstream.io.consumer import ConsumerRecord
    from millstream.io.producer import Producer

__all__ = [
    "Answer",
    "BranchedKStream",
    "Buffered",
    "Cancellable",
    "CogroupedKStream",
    "Consumer",
    "ConsumerRecord",
    "EmitStrategy",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "GlobalKTable",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueIterator",
    "KeyValueStore",
    "ListValueStore",
    "Processor",
    "ProcessorContext",
    "Producer",
    "PunctuationType",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyVersionedKeyValueStore",
    "ReadOnlyWindowStore",
    "Record",
    "RecordMetadata",
    "SessionStore",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "State",
    "Store",
    "StoreBuilder",
    "Streams",
    "StreamsBuilder",
    "StreamsConfig",
    "Suppressed",
    "TimeOrderedBuffer",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "Topology",
    "UnlimitedWindows",
    "ValueAndTimestamp",
    "ValueTransformerWithKey",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "Window",
    "WindowStore",
    "Windowed",
    "Windows",
    "errors",
    "handlers",
    "key",
    "other",
    "serdes",
    "stores",
    "timestamp",
    "timestamps",
    "value",
]

__version__ = "0.1.0"

_LATER: Final = {
    **dict.fromkeys(("Answer", "State", "Streams"), "millstream.app"),
    "Consumer": "millstream.consumer",
    "ConsumerRecord": "millstream.io.consumer",
    **dict.fromkeys(("key", "other", "timestamp", "value"), "millstream.dsl.columns"),
    "Producer": "millstream.io.producer",
}


if not TYPE_CHECKING:  # checkers of types have seen all names above, and refuse others

    def __getattr__(name: str) -> Any:
        """Import what needs Spark or Polars only when it is asked for: tests and tools do without."""
        module = _LATER.get(name)
        if module is not None:
            return getattr(import_module(module), name)
        hint = missing_class(name)
        plain = f"module {__name__!r} has no attribute {name!r}"
        # `from millstream import ...` asks so, and swallows what an AttributeError says.
        if hint is not None and sys._getframe(1).f_code.co_name == "_handle_fromlist":  # noqa: SLF001
            raise ImportError(f"cannot import name {name!r} from {__name__!r}: {hint}")
        raise AttributeError(plain if hint is None else f"{plain}: {hint}")
