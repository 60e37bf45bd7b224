"""The first step of a foreign-key join, at the left table: each update subscribes to the right row it names.

Which subscriptions are sent, and whether they are answered, is Kafka's (since 4.1):

=====  =================================  =============================================================
join   an update of the left row          subscriptions
=====  =================================  =============================================================
inner  inserted, or the same foreign key  3 to the foreign key
       another foreign key                0 to the old one, 2 to the new one
       deleted, or no foreign key now     1 to the old one, if there was one
left   inserted, or the same foreign key  2 to the foreign key
       another foreign key                0 to the old one, 2 to the new one
       deleted, or no foreign key now     0 to the old one, if there was one; 2 to none: it is answered
                                          without being kept
=====  =================================  =============================================================

The numbers are those of `Instruction`. Two foreign keys are the same if their bytes are. Where a left row
changes several times in an epoch, from the second time on every 3 is a 2, and a 2 to none is sent in place of
nothing: answers to what the row was in between are stale, so that nobody else would tell that it has lost its
partner. (Kafka's result may stay as it was.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.errors import SerdeError
from millstream.processors.batch import Batch
from millstream.processors.joins.foreign_key.messages import Instruction, hash_of, kept_of, subscription
from millstream.processors.joins.foreign_key.serdes import ForeignKeySerdes
from millstream.processors.operator import Operator, OperatorContext, collect, rest
from millstream.processors.table import drop_null_keys, latest_only, olds_of
from millstream.serdes import Serde, serde_failure

__all__ = ["SubscriptionSender"]

_ANSWERED: Final = {
    Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE: Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
}
_Told = tuple[bytes | None, Instruction]
"""Foreign key and what to do."""
_Sent = tuple[bytes | None, bytes]
"""Foreign key and subscription."""


class SubscriptionSender(Operator):
    """From updates of the left table to subscriptions, by foreign key."""

    def __init__(
        self,
        foreign_key: Callable[[Any, Any], Any],
        serdes: ForeignKeySerdes,
        *,
        left_join: bool,
    ) -> None:
        self.foreign_key = foreign_key
        self.serdes = serdes
        self._instructions = self._of_left_join if left_join else self._of_inner_join
        self._changed: set[bytes] = set()
        """The left rows that have subscribed or unsubscribed in this epoch, by primary key."""

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self._primary = self.serdes.primary_key(context)
        self._foreign = self.serdes.foreign_key(context)
        self._value = self.serdes.left_value(context)
        self._partition = int(context.task_id.rsplit("_", 1)[1])

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        batch = latest_only(self.context, drop_null_keys(self.context, batch)).in_rows()
        olds = olds_of(batch)
        lists, batch = collect(
            self.context,
            batch,
            lambda start: map(
                self._subscriptions, rest(batch.keys, start), rest(batch.values, start), rest(olds, start)
            ),
        )
        rows = [row for row, sent in enumerate(lists) for _ in sent]
        sent = [one for several in lists for one in several]
        return batch.expand(rows, [key for key, _ in sent], [message for _, message in sent])

    def flush(self) -> None:
        """See `Operator.flush`."""
        self._changed.clear()

    def _subscriptions(self, key: Any, new: Any, old: Any) -> list[_Sent]:
        before, now = self._foreign_key(key, old), self._foreign_key(key, new)
        known = new is not None or old is not None
        told = self._instructions(before, now, known=known)
        primary = _encoded(self._primary, key, "the key of the left row")
        if primary in self._changed:
            told = self._again(told, known=known)
        if not told:
            return []
        self._changed.add(primary)
        value_hash = hash_of(None if new is None else _encoded(self._value, new, "the left value"))
        kept = kept_of(self._partition, value_hash)
        return [(foreign, subscription(instruction, kept, primary)) for foreign, instruction in told]

    def _again(self, told: list[_Told], *, known: bool) -> list[_Told]:
        """What is sent for a row that has changed in this epoch before: something that is answered."""
        if not told and known:
            return [(None, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]
        return [(foreign, _ANSWERED.get(instruction, instruction)) for foreign, instruction in told]

    def _of_inner_join(self, before: bytes | None, now: bytes | None, *, known: bool) -> list[_Told]:
        if now is None:
            if known and before is None:
                self.context.dropped(1)
            return [] if before is None else [(before, Instruction.DELETE_KEY_AND_PROPAGATE)]
        if before is None or before == now:
            return [(now, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)]
        return [
            (before, Instruction.DELETE_KEY_NO_PROPAGATE),
            (now, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE),
        ]

    def _of_left_join(self, before: bytes | None, now: bytes | None, *, known: bool) -> list[_Told]:
        if not known:
            return []
        moved = before is not None and before != now
        ended = [(before, Instruction.DELETE_KEY_NO_PROPAGATE)] if moved else []
        return [*ended, (now, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]

    def _foreign_key(self, key: Any, value: Any) -> bytes | None:
        """What a value refers to, as the right table has it; None if it refers to nothing."""
        foreign = None if value is None else self.foreign_key(key, value)
        return (
            None
            if foreign is None
            else _encoded(self._foreign, foreign, "what foreign_key returned, a key of the right table,")
        )


def _encoded(serde: Serde[Any], value: Any, what: str) -> bytes:
    try:
        return serde.serialize(value)
    except Exception as error:
        failure = serde_failure(error, serde=serde, value=value)
        raise SerdeError(f"{what} does not fit the serde of the join. {failure}") from error
