"""The loading of global topics in sight: a start reads them to their ends before anything else.

Told in the way of restores (:mod:`millstream.engine.restore_notes`): to their listeners, in `metrics`, and on
the console. An epoch at work is not in sight; what is committed is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from millstream.commit.coordinator import CommitCoordinator
from millstream.log.api import TopicPartition
from millstream.state.changelog.follow import Progress, RestoreListener
from millstream.topology.plan import Plan

_LOGGER = logging.getLogger("millstream")


class GlobalLoading:
    """Tells a listener how far the global stores are. A listener of the end of epochs."""

    def __init__(
        self,
        plan: Plan,
        coordinator: CommitCoordinator,
        listener: RestoreListener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._coordinator = coordinator
        self._listener = listener
        self._clock = clock
        self._began = 0.0
        self._going_on: set[TopicPartition] = set()

    def begin(self) -> None:
        """The application was opened: what is there by now is loaded first."""
        self._began = self._clock()
        loading = self._coordinator.loading()
        self._going_on = {place for place, (done, total) in loading.items() if done < total}
        for place in self._going_on:
            self._listener.on_start(self._progress(place, *loading[place]))

    def epoch_ended(self, _epoch: object) -> None:
        """Tell how far it is now."""
        if not self._going_on:
            return
        loading = self._coordinator.loading()
        for place in sorted(self._going_on):
            done, total = loading[place]
            progress = self._progress(place, done, total)
            if done < total:
                self._listener.on_batch(progress)
                continue
            self._going_on.discard(place)
            self._listener.on_end(progress)
            _LOGGER.info(
                "Global store %r has loaded %s: %d records, %.0f per second.",
                progress.store,
                place,
                total,
                progress.records_per_second,
            )

    def _progress(self, place: TopicPartition, done: int, total: int) -> Progress:
        store = next(
            name
            for sub in self._plan.global_subtopologies
            if sub.source_of(place.topic) is not None
            for name in sub.stores
        )
        rate = done / max(self._clock() - self._began, 1e-9)
        left = (total - done) / rate if rate else None
        return Progress(store, place.partition, done, total, 0, rate, left)
