"""What an operator is, as far as others have to know it: declared where its node is written.

The plan, the task and the engine read it off the node; nobody looks into an operator, or at what makes it, to
find out. The operator itself (`processors.operator.Operator`) is only made by the task that runs it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from millstream.processors.aggregations.aggregation import Aggregation


class ChainingStrategy(Enum):
    """Whether an operator may run in one pass with those around it: see `processors.operator_chain`."""

    NEVER = "never"
    ALWAYS = "always"
    TAIL = "tail"
    """Only as the last one: what comes behind it has other rows."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """The declaration of one operator.

    An operator with several ports gets each row with the number of the port that it came by, in the task's
    order. A port is a parent of its node: the first parent is port 0. Kafka describes such an operator as
    several nodes, as a join's KSTREAM-JOINTHIS and KSTREAM-JOINOTHER in front of a KSTREAM-MERGE. Here, each
    of these two is a node that hands its rows on, and so one port of the operator at the merge: the
    description has all three, while only the operator at work touches the stores.
    """

    chaining: ChainingStrategy = ChainingStrategy.NEVER
    columnar: bool = False
    """It would rather have its batches as columns than as Python values."""
    changes_key: bool = False
    """What goes on may have another key: who needs the records of a key together must repartition them."""
    sees_context: bool = False
    """It runs code of the user's that can see offsets and stream time."""
    may_schedule: bool = False
    """The wall clock can bring something out of it: it runs code of the user's that can schedule punctuators,
    or its windows close by the clock."""
    combine: Aggregation | None = None
    """How rows of a key may be combined in front of its repartition: see `topology.combiner`."""
    ports: int = 1
    """How many inputs it tells apart. With one, rows of all parents are alike."""
    stores: tuple[str, ...] = ()
    """The stores that it is connected with, in the order of their connection."""
    only_reads: frozenset[str] = frozenset()
    """Those of its stores that it never writes to."""
    reads_as_of: frozenset[str] = frozenset()
    """Those of its stores that it reads as they were at each of its rows, whoever wrote to them since: see
    `processors.table_history`. It need not take turns with those who write."""
    hides_writes: bool = False
    """It can't tell what each of its rows has written, nor can code of the user's: who reads its stores takes
    turns with it."""
    described_stores: tuple[str, ...] | None = None
    """The stores that descriptions show: Kafka connects a join's stores with the nodes in front of it."""
    described: bool = True
    """False for an operator that brings several nodes of Kafka's together where Kafka has none: descriptions
    show the nodes in front of it in its place."""

    @property
    def shown_stores(self) -> tuple[str, ...]:
        """The stores that a description shows."""
        return self.stores if self.described_stores is None else self.described_stores

    def connected(self, store: str) -> OperatorSpec:
        """The same, with one more store."""
        return self if store in self.stores else replace(self, stores=(*self.stores, store))

    def writes(self, store: str) -> bool:
        """Whether it may write to a store."""
        return store in self.stores and store not in self.only_reads


PLAIN: Final = OperatorSpec()
CHAINED: Final = OperatorSpec(chaining=ChainingStrategy.ALWAYS)
CHAIN_TAIL: Final = OperatorSpec(chaining=ChainingStrategy.TAIL)
COLUMNAR: Final = OperatorSpec(columnar=True)
PROCESSOR: Final = OperatorSpec(sees_context=True, may_schedule=True, changes_key=True)
"""A processor of the user's own. It may do anything."""
