"""An application of the fault tests run by Spark, judged by the same oracle: invariants I1 to I8."""

from __future__ import annotations

import random

from tests.simulation import oracle
from tests.simulation.fault_programs import APPLICATIONS, PARTITIONS
from tests.simulation.observation import copies_in, manifests_in, rows_of, sealed_in
from tests.spark.lab import Lab

from millstream.durable import OS_FILES
from millstream.log import TopicConfig, TopicPartition, record_batch
from millstream.state.changelog.rows import changelog_topic
from millstream.types import Partition

APP_ID = "app"


class Trial:
    """Random input for an application, kept here, and the verdict on what became of it."""

    def __init__(self, lab: Lab, name: str, *, records: int, seed: int) -> None:
        self.name = name
        self.records = records
        self._lab = lab
        self._application = APPLICATIONS[name]
        self._inputs: list[list[oracle.Row]] = [[] for _ in range(PARTITIONS)]
        chosen = random.Random(seed)
        for time in range(records):
            partition, key, value = self._application.record(chosen)
            self._inputs[partition].append((key, value, time))
        lab.log.create_topic(self._application.input, TopicConfig(partitions=PARTITIONS))
        for number, rows in enumerate(self._inputs):
            keys, values, times = zip(*rows, strict=True)
            place = TopicPartition(self._application.input, Partition(number))
            lab.log.append(place, record_batch(list(keys), list(values), list(times)))

    def check(self, *, settled: bool = True) -> oracle.Verdict:
        """Raise if an invariant is broken. Not settled: a coordinator died, and nobody has come after it."""
        root = self._lab.folder / "log"
        plan = self._application.build().plan()
        facts = oracle.Facts(
            inputs={self._application.input: self._inputs},
            manifests=manifests_in(root / "applications" / APP_ID / "manifests"),
            outputs={topic: rows_of(root, topic, OS_FILES) for topic in self._application.outputs},
            changelogs={
                store: rows_of(root, changelog_topic(APP_ID, store), OS_FILES)
                for store in plan.changelog_topics(APP_ID)
            },
            stores=copies_in(self._lab.state_dir, plan, APP_ID, "lmdb"),
            sealed=sealed_in(root),
            referenced=set(self._lab.log.references()),
            settled=settled,
        )
        return oracle.check(oracle.PROGRAMS[self.name](PARTITIONS), facts)

    def check_all(self) -> None:
        """The same, with all input committed."""
        assert self.check().records == self.records
