"""Runs a processor of the user's own: one record at a time, collecting what it forwards."""

from __future__ import annotations

from typing import Any

from millstream.processors.api import FixedKeyProcessor, Processor
from millstream.processors.batch import Batch
from millstream.processors.operator import Emission, Operator, OperatorContext
from millstream.record import FixedKeyRecord, Record


class UserProcessor(Operator):
    """Shows each row to the processor as a `Record`."""

    record_type: type[Any] = Record

    def __init__(self, processor: Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]) -> None:
        self.processor = processor

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self.user = self.user_context(context)
        self.processor.init(self.user)

    def user_context(self, context: OperatorContext) -> Any:
        """The context that the processor gets."""
        return context.processor_context()

    def process(self, batch: Batch) -> Emission:
        """See `Operator.process`."""
        user, process, make = self.user, self.processor.process, self.record_type
        for row, (key, value, timestamp) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ):
            user.begin_row(batch, row)
            try:
                process(make(key, value, timestamp, batch.headers_of(row)))
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self.context.failed(batch, row, error)
            finally:
                user.end_row()
        emission: Emission = user.emitted()
        return emission

    def close(self) -> None:
        """See `Operator.close`."""
        self.processor.close()


class UserFixedKeyProcessor(UserProcessor):
    """Shows each row to the processor as a `FixedKeyRecord`, which can't change its key."""

    record_type = FixedKeyRecord

    def user_context(self, context: OperatorContext) -> Any:
        """See `UserProcessor.user_context`."""
        return context.fixed_key_context()
