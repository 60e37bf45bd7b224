"""Reset and deletion of an application that does not run: what Kafka's application reset tool does.

A reset lets the program begin anew under its name: its state is gone, and its sources are read from where you
say. What it has written to its output topics stays. The reset is a commit like any other: a manifest behind
the head that has no tasks, so that epochs go on counting and what a topic has taken in before is not taken
for something of the future.

A deletion leaves nothing but the output topics. They still know who wrote them, so another application
can't start under the name on the same topics; to begin anew is what the reset is for.

Both hold the application's lease, so they are refused while it runs, and it can't start meanwhile. A crash in
the middle leaves an application that is refused; to reset or delete it again completes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import structs

from millstream.clock import now_ms
from millstream.commit.application_storage import ApplicationStorage, application_ids
from millstream.commit.lease import Lease, acquire, running_owner
from millstream.commit.manifest import Manifest, ManifestChain
from millstream.commit.publisher import EmbeddedPublisher
from millstream.errors import MillstreamError
from millstream.log import FileLog, TopicPartition
from millstream.state.changelog.rows import changelog_topic
from millstream.state.local.cleaning import clean
from millstream.state.local.directory import StateDirectory, noted_log
from millstream.types import Epoch, Offset, Partition

_TTL_MS: Final = 30_000
_NO_PLAN: Final[dict[str, Any]] = {"subtopologies": [], "repartition_topics": {}}


class ApplicationRunsError(MillstreamError):
    """What was asked for needs an application that does not run."""


class UnknownApplicationError(MillstreamError):
    """The log has no application of that name."""


@dataclass(frozen=True, slots=True)
class SourceReset:
    """Where a partition of a source was read up to, and where it will be read from."""

    place: TopicPartition
    before: Offset
    after: Offset | None
    """None: where the program says, as if it had never run."""


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset will do."""

    sources: tuple[SourceReset, ...]
    changelogs: tuple[str, ...]
    """Topics that will be deleted: they are the state."""


def find_application(log: FileLog, application_id: str) -> ApplicationStorage:
    """Where an application keeps its truth; an error names those that there are."""
    known = application_ids(log.root)
    if application_id not in known:
        raise UnknownApplicationError(
            f"There is no application {application_id!r} in {log.root}. Applications: "
            f"{', '.join(known) or 'none'}. Likely cause: a typing error, or another log. Remedy: name one "
            "of these, or the log (--log)."
        )
    return ApplicationStorage(log.root.resolve(), application_id)


def plan_reset(
    storage: ApplicationStorage,
    log: FileLog,
    choose: Callable[[TopicPartition, Offset], Offset | None],
    topics: Collection[str] = (),
) -> ResetPlan:
    """What a reset would do. `choose(partition, before)` says where to read from; `topics` are those asked.

    The topics that are not asked for begin where the program says.
    """
    head = _head(storage)
    known = sorted({topic for topic, _, _ in head.positions})
    for topic in topics:
        if topic not in known:
            raise MillstreamError(
                f"Application {storage.application_id!r} does not read topic {topic!r}. It reads: "
                f"{', '.join(known) or 'none'}. Remedy: name one of these, or none for all."
            )
    there = set(log.topics())
    sources = tuple(
        SourceReset(
            place,
            before,
            choose(place, before) if place.topic in there and (not topics or place.topic in topics) else None,
        )
        for place, before in (
            (TopicPartition(topic, number), before) for topic, number, before in head.positions
        )
    )
    return ResetPlan(sources, tuple(_changelogs(storage, log, head)))


def reset(
    storage: ApplicationStorage, log: FileLog, plan: ResetPlan, directory: StateDirectory | None
) -> Manifest:
    """Do it.

    1. Take the lease; publish the head, if its coordinator died before it could.
    2. Commit a manifest without tasks, and with the new positions. From here on the application is reset.
    3. Delete the changelogs.
    4. Delete the local state of this host.
    5. Remove the manifests before: what snapshots they know of is of no use any more.
    """
    with _leased(storage) as lease:  # 1.
        chain = ManifestChain(storage)
        head = _published_head(storage, log, chain)
        manifest = chain.place(_without_tasks(head, lease, plan))  # 2.
        chain.witness(manifest)
        for topic in plan.changelogs:  # 3.
            log.delete_topic(topic)
        _remove_local_state(storage, directory)  # 4.
        chain.remove_unneeded(manifest)  # 5.
    return manifest


def delete(storage: ApplicationStorage, log: FileLog, directory: StateDirectory | None) -> tuple[str, ...]:
    """Delete an application and its state, and return the output topics that stay.

    1. Take the lease; publish the head, if its coordinator died before it could.
    2. Delete the changelogs.
    3. Bring what its output topics have in sealed files into the topics.
    4. Delete the local state of this host, and the sealed files that no topic needs.
    5. Delete the application's folder.
    """
    with _leased(storage, release=False):  # 1.
        chain = ManifestChain(storage)
        head = chain.latest()
        if head is not None:
            head = _published_head(storage, log, chain)
        for topic in _changelogs(storage, log, head):  # 2.
            log.delete_topic(topic)
        written = tuple(topic for topic in log.topics() if _publishes(storage, log, topic))
        for topic in written:  # 3.
            for number in range(log.config(topic).partitions):
                log.rewrite(TopicPartition(topic, Partition(number)), min_entries=1, up_to=Offset(0))
        _remove_local_state(storage, directory)  # 4.
        _remove_sealed_files(storage, log)
        shutil.rmtree(storage.path)  # 5.
    return written


def _head(storage: ApplicationStorage) -> Manifest:
    head = ManifestChain(storage).latest()
    if head is None:
        raise MillstreamError(
            f"Application {storage.application_id!r} has committed nothing yet, so there is nothing to reset."
        )
    return head


@contextmanager
def _leased(storage: ApplicationStorage, *, release: bool = True) -> Iterator[Lease]:
    owner = running_owner(storage, now_ms=now_ms())
    if owner is not None:
        raise ApplicationRunsError(
            f"Application {storage.application_id!r} is run by {owner}. Nothing was changed. Remedy: stop it "
            "first (Ctrl-C, or SIGTERM to that process). A coordinator on another host that was killed "
            "counts as running until its lease ends."
        )
    lease = acquire(storage, clock=now_ms, ttl_ms=_TTL_MS)
    try:
        with lease.kept_alive():
            yield lease
    finally:
        if release or storage.leases.is_dir():
            lease.release()
        else:
            lease.close()


def _published_head(storage: ApplicationStorage, log: FileLog, chain: ManifestChain) -> Manifest:
    head = chain.head()
    assert head is not None  # asked before
    chain.complete_head(head)
    EmbeddedPublisher(storage, log).publish(head)
    return head


def _without_tasks(head: Manifest, lease: Lease, plan: ResetPlan) -> Manifest:
    stores = {store["name"] for sub in head.plan["subtopologies"] for store in sub["stores"]}
    epoch = Epoch(head.epoch + 1)
    return structs.replace(
        head,
        epoch=epoch,
        term=lease.term,
        parent=head.digest(),
        fingerprint="",
        clock_ms=now_ms(),
        positions=tuple(
            (source.place.topic, source.place.partition, source.after)
            for source in plan.sources
            if source.after is not None
        ),
        tasks={},
        sealed=(),
        inferred_types=tuple(row for row in head.inferred_types if row[0] not in stores),
        plan=_NO_PLAN,
        repartitions={},
        oldest=epoch,
        types=msgspec.UNSET,
    )


def _changelogs(storage: ApplicationStorage, log: FileLog, head: Manifest | None) -> list[str]:
    """The changelogs that the last program has, and those into which an earlier one has written."""
    subs = () if head is None else head.plan["subtopologies"]
    named = {
        changelog_topic(storage.application_id, store["name"])
        for sub in subs
        for store in sub["stores"]
        if store["logging"] and store.get("source_topic") is None
    }
    prefix = changelog_topic(storage.application_id, "").removesuffix("-changelog")
    return [
        topic
        for topic in log.topics()
        if topic in named
        or (topic.startswith(prefix) and topic.endswith("-changelog") and _publishes(storage, log, topic))
    ]


def _publishes(storage: ApplicationStorage, log: FileLog, topic: str) -> bool:
    return any(
        publisher == storage.application_id
        for number in range(log.config(topic).partitions)
        for publisher, _ in log.publications(TopicPartition(topic, Partition(number)))
    )


def _remove_local_state(storage: ApplicationStorage, directory: StateDirectory | None) -> None:
    """Only if it is that of this log: another one may have an application of the same name."""
    app_id = storage.application_id
    if directory is None or noted_log(directory, app_id) != storage.root.resolve():
        return
    clean(directory, app_id, unused_for_ms=0)
    if not directory.tasks(app_id):
        shutil.rmtree(directory.path / app_id, ignore_errors=True)


def _remove_sealed_files(storage: ApplicationStorage, log: FileLog) -> None:
    needed = log.references()
    for _, folder in storage.epoch_folders():
        for path in folder.iterdir():
            if storage.relative(path) not in needed:
                path.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    sealed = storage.root / "sealed" / storage.application_id
    if not any(sealed.iterdir()):
        sealed.rmdir()
