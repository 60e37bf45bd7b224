"""A world that is compared with the oracle: at any time, and at the end."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation import oracle
from tests.simulation.fault_life import APPLICATION_ID, OrdinaryWorld
from tests.simulation.observation import copies_in, held_by, sealed_in, snapshot_copies, table_rows_of
from tests.simulation.oracle import Facts, Verdict
from tests.simulation.oracle_programs import table_row

from millstream.commit.store_opening import apply_commit
from millstream.state.local.directory import open_state_directory

__all__ = ["JudgedWorld"]


@dataclass
class JudgedWorld(OrdinaryWorld):
    """An application of which everything that can be seen is checked."""

    def check(self) -> Verdict:
        """Compare everything with the oracle. A dead coordinator's last epoch may be half published."""
        settled = self.app is not None
        facts = self.facts(settled=settled)
        return oracle.check(self.program(), facts)

    def check_versions(self) -> None:
        """Compare only what can be seen without reading a topic, which would bring it into order."""
        self.chronicle.note_manifests(self._manifests())
        oracle.check_versions(self.chronicle.manifests, self._copies(self.state))

    def check_snapshots(self) -> int:
        """Make a store of every snapshot that can be seen, and compare it with the oracle; how many."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            copies = snapshot_copies(self.snapshots / APPLICATION_ID, Path(scratch), self.torn)
        oracle.check_snapshots(self.program(), self.facts(settled=self.app is not None), copies)
        return len(copies)

    def check_to_the_end(self) -> Verdict:
        """Run to the end of the input, follow with a standby, and compare everything."""
        self.finish()
        self.follow()
        verdict = self.check()
        everything = sum(map(len, self.inputs))
        if verdict.records != everything or not verdict.outputs:
            raise oracle.InvariantBroken(f"I1: {verdict.records} of {everything} records were committed")
        return verdict

    def follow(self) -> None:
        """Bring a standby of every task to the head."""
        worker = replace(self._worker(), directory=open_state_directory(self.standby))
        for planned, entry in self._committed_tasks():
            apply_commit(worker, planned, entry)

    def facts(self, *, settled: bool = True) -> Facts:
        """Everything that can be seen from outside, and all that was ever seen."""
        held = self.note()
        rows = {store: self.chronicle.topics[topic] for store, topic in self.changelogs().items()}
        rows_now = {store: held[topic] for store, topic in self.changelogs().items()}
        for store, topic in self.followed().items():
            rows[store] = [[table_row(row) for row in partition] for partition in self.inputs]
            rows_now[store] = table_rows_of(held_by(self.log_root, topic, self.files))
        return Facts(
            inputs={self.application.input: self.inputs},
            manifests=self.chronicle.manifests,
            outputs={topic: self.chronicle.topics[topic] for topic in self.application.outputs},
            changelogs=rows,
            stores=self._copies(self.state),
            standbys=self._copies(self.standby),
            sealed=sealed_in(self.log_root),
            referenced=set(self.log().references()),
            forgetful={"visits"} if self._is_forgetful else frozenset(),
            settled=settled,
            applied=frozenset(self._at_head),
            kept={manifest["epoch"] for manifest in self._manifests()},
            retained_manifests=self.retained_manifests,
            outputs_now={topic: held[topic] for topic in self.application.outputs},
            changelogs_now=rows_now,
            retention=frozenset() if self.retention_bytes is None else {*self.application.outputs},
        )

    def _copies(self, state: Path) -> dict[tuple[str, str], oracle.Copy]:
        return copies_in(state, self.plan, APPLICATION_ID, self.backend)
