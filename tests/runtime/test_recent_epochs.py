"""How many epochs are kept, by what they have sealed."""

from __future__ import annotations

from math import inf

from millstream.runtime.manifest import Manifest, Section, TaskEntry
from millstream.runtime.recent_epochs import RecentEpochs
from millstream.types import Epoch, Partition, Term

CHANGELOG = "app-counts-changelog"


def entry(epoch: int, size: int, topic: str = CHANGELOG) -> TaskEntry:
    section = Section(topic, Partition(0), 0, size, 1, 0, 0)
    return TaskEntry(Epoch(epoch), f"{epoch}", "", (section,), {}, 0, (), ())


def commit(recent: RecentEpochs, epoch: int, size: int, topic: str = CHANGELOG) -> Manifest:
    """An epoch of one task that sealed so many bytes."""
    sealed = {"0_0": entry(epoch, size, topic)}
    oldest = recent.oldest_with(epoch, sealed.values())
    manifest = Manifest("app", Epoch(epoch), Term(1), "", "", 0, (), sealed, ("0_0",), (), oldest=oldest)
    recent.committed(manifest)
    return manifest


def oldest_ones(recent: RecentEpochs, sizes: list[int]) -> list[int]:
    return [commit(recent, epoch, size).oldest for epoch, size in enumerate(sizes, 1)]


def of_state(
    state_bytes: int | None, *, spare_bytes: int = 0, most: int = 100, partitions: int = 1
) -> RecentEpochs:
    sizes = None if state_bytes is None else [state_bytes, *[0] * (partitions - 1)]
    recent = RecentEpochs(
        most=most, spare_bytes=spare_bytes, changelogs={CHANGELOG}, changelog_sizes=lambda: sizes
    )
    recent.resume([])
    return recent


def test_epochs_are_kept_up_to_a_sixteenth_of_the_state() -> None:
    assert oldest_ones(of_state(1600), [20] * 8) == [1, 1, 1, 1, 1, 2, 3, 4]


def test_what_is_spare_may_be_taken_however_small_the_state_is() -> None:
    assert oldest_ones(of_state(1600, spare_bytes=200), [20] * 12) == [1] * 10 + [2, 3]
    assert oldest_ones(of_state(1600, spare_bytes=50, partitions=4), [20] * 12) == [1] * 10 + [2, 3]


def test_there_are_two_however_large_they_are() -> None:
    assert oldest_ones(of_state(1600), [500] * 5) == [1, 1, 2, 3, 4]


def test_there_are_no_more_than_wanted_however_small_they_are() -> None:
    for most in (1, 2, 5):
        assert oldest_ones(of_state(0, spare_bytes=1000, most=most), [1] * 7)[-1] == 7 - most + 1


def test_all_are_kept_where_state_can_not_be_told() -> None:
    recent = of_state(None)
    assert oldest_ones(recent, [500] * 10) == [1] * 10
    assert recent.urgency() == 0


def test_an_epoch_that_is_not_committed_does_not_count() -> None:
    recent = of_state(160)
    oldest_ones(recent, [5, 5, 5])
    for _ in range(3):
        assert recent.oldest_with(4, [entry(4, 5)]) == 3
    assert recent.urgency() == 0.25, "one is no longer kept"


def test_it_is_worth_it_when_an_eighth_can_be_compacted_and_presses_when_there_is_more() -> None:
    recent = of_state(160)
    oldest_ones(recent, [5] * 5)
    assert recent.urgency() == 0.75, "two of the five are kept"
    commit(recent, 6, 5)
    assert recent.urgency() == 1
    for epoch in range(7, 11):
        commit(recent, epoch, 5)
    assert recent.urgency() == 2


def test_outputs_are_kept_like_changes_but_nothing_to_tidy_up() -> None:
    recent = of_state(120)
    kept = [commit(recent, epoch, 50, "counts").oldest for epoch in range(1, 6)]
    assert kept == [1, 1, 2, 3, 4]
    assert recent.urgency() == 0


def test_large_outputs_are_worth_it_but_never_press() -> None:
    """What lies in sealed files is on disk, whatever it is; but only changes of state pile up for ever."""
    recent = of_state(120)
    for epoch in range(1, 60):
        commit(recent, epoch, 1 << 20, "counts")
        assert recent.urgency() == (1 if epoch - 2 >= 32 else 0)
    recent.tended(recent.gone)
    assert recent.urgency() == 0
    of_much_state = of_state(100 << 20)
    for epoch in range(1, 60):
        commit(of_much_state, epoch, 1 << 20, "counts")
    assert of_much_state.urgency() == 1


def test_what_came_while_it_was_tidied_up_is_left() -> None:
    recent = of_state(160)
    oldest_ones(recent, [5] * 8)
    begun = recent.gone
    commit(recent, 9, 5)
    recent.tended(begun)
    assert recent.urgency() == 5 / max(160 - 3 * 5, 1) * 8


def test_changes_that_wait_for_being_compacted_are_no_state() -> None:
    """Else more would be kept, and less be worth it, the more had piled up."""
    changelog = 1600
    recent = RecentEpochs(
        most=100, spare_bytes=0, changelogs={CHANGELOG}, changelog_sizes=lambda: [changelog]
    )
    recent.resume([])
    there = [commit(recent, epoch, 400) for epoch in range(1, 10)]
    changelog += 9 * 400
    assert recent.urgency() == 7 * 400 / 200
    recent.resume(there)
    assert recent.urgency() == 7 * 400 / 200, "whoever takes over sees the same"
    changelog -= 7 * 400
    recent.tended(recent.gone)
    commit(recent, 10, 100)
    assert recent.urgency() == 400 / 200


def test_where_there_is_no_state_everything_presses() -> None:
    recent = of_state(0)
    oldest_ones(recent, [1, 1])
    assert recent.urgency() == 0
    commit(recent, 3, 1)
    assert recent.urgency() == inf


def test_it_goes_on_with_what_is_there() -> None:
    before = of_state(800)
    there = [commit(before, epoch, 25) for epoch in range(1, 6)]
    assert there[-1].oldest == 4
    after = of_state(800)
    after.resume(there)
    assert commit(after, 6, 25).oldest == 5
    assert after.urgency() >= 1, "four that nobody has tidied up behind"
    after.resume(there[3:])
    assert after.urgency() == 0, "somebody has removed the manifests before"


def test_many_epochs_of_short_lives_are_worth_it_but_never_press() -> None:
    there: list[Manifest] = []
    for life in range(20):
        recent = of_state(None, most=10)
        recent.resume(there)
        assert recent.urgency() == (1 if life * 3 >= 20 else 0)
        there += [commit(recent, 3 * life + number, 1) for number in (1, 2, 3)]
    recent.tended(recent.gone)
    assert recent.urgency() == 0
