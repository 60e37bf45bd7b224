"""How many epochs are kept, by what they have sealed."""

from __future__ import annotations

from bisect import bisect_left

from millstream.commit.manifest import Manifest, Section, TaskEntry
from millstream.commit.manifest_retention import ManifestRetention, Urgency
from millstream.types import Epoch, Partition, Term

CHANGELOG = "app-counts-changelog"


def entry(epoch: int, size: int, topic: str = CHANGELOG) -> TaskEntry:
    section = Section(topic, Partition(0), 0, size, 1, 0, 0)
    return TaskEntry(Epoch(epoch), f"{epoch}", "", (section,), {}, 0, (), ())


def commit(recent: ManifestRetention, epoch: int, size: int, topic: str = CHANGELOG) -> Manifest:
    """An epoch of one task that sealed so many bytes."""
    sealed = {"0_0": entry(epoch, size, topic)}
    oldest = recent.oldest_with(epoch, sealed.values())
    manifest = Manifest("app", Epoch(epoch), Term(1), "", "", 0, (), sealed, ("0_0",), (), oldest=oldest)
    recent.committed(manifest)
    return manifest


def oldest_ones(recent: ManifestRetention, sizes: list[int]) -> list[int]:
    return [commit(recent, epoch, size).oldest for epoch, size in enumerate(sizes, 1)]


def of_state(
    state_bytes: int | None, *, spare_bytes: int = 0, most: int = 100, partitions: int = 1
) -> ManifestRetention:
    sizes = None if state_bytes is None else [state_bytes, *[0] * (partitions - 1)]
    recent = ManifestRetention(
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
    assert recent.urgency() is Urgency.NONE


def test_an_epoch_that_is_not_committed_does_not_count() -> None:
    recent = of_state(160)
    oldest_ones(recent, [5, 5, 5])
    for _ in range(9):
        assert recent.oldest_with(4, [entry(4, 5)]) == 3
    assert recent.urgency() is Urgency.NONE


def urgencies(recent: ManifestRetention, sizes: list[int], topic: str = CHANGELOG) -> list[Urgency]:
    found: list[Urgency] = []
    for epoch, size in enumerate(sizes, 1):
        commit(recent, epoch, size, topic)
        found.append(recent.urgency())
    return found


def first_times(found: list[Urgency]) -> tuple[int, int]:
    """After how many epochs it was worth it, and pressed."""
    assert found == sorted(found)
    return bisect_left(found, Urgency.WORTH_IT) + 1, bisect_left(found, Urgency.BACKPRESSURE) + 1


def test_it_is_worth_it_when_an_eighth_can_be_compacted_and_presses_when_a_half_can() -> None:
    assert first_times(urgencies(of_state(160), [5] * 20)) == (2 + 4, 2 + 16), "two are kept"


def test_small_state_is_tidied_up_by_what_is_spare_and_does_not_press_soon() -> None:
    assert first_times(urgencies(of_state(16, spare_bytes=10), [5] * 60)) == (2 + 2, 2 + 32)
    assert first_times(urgencies(of_state(16, spare_bytes=5, partitions=2), [5] * 60)) == (2 + 2, 2 + 32)


def test_outputs_are_kept_like_changes_but_nothing_to_tidy_up() -> None:
    recent = of_state(120)
    kept = [commit(recent, epoch, 50, "counts").oldest for epoch in range(1, 6)]
    assert kept == [1, 1, 2, 3, 4]
    assert recent.urgency() is Urgency.NONE


def test_large_outputs_are_worth_it_but_never_press() -> None:
    """What lies in sealed files is on disk, whatever it is; but only changes of state pile up for ever."""
    recent = of_state(120)
    assert first_times(urgencies(recent, [1 << 20] * 90, "counts")) == (2 + 32, 90 + 1)
    recent.maintained(recent.gone)
    assert recent.urgency() is Urgency.NONE
    assert first_times(urgencies(of_state(100 << 20), [2 << 20] * 90, "counts")) == (3 + 25, 90 + 1)


def test_what_came_while_it_was_tidied_up_is_left() -> None:
    recent = of_state(200)
    oldest_ones(recent, [10] * 8)
    begun = recent.gone
    commit(recent, 9, 10)
    assert recent.urgency() is Urgency.WORTH_IT
    recent.maintained(begun)
    found = [recent.urgency()]
    for epoch in (10, 11):
        commit(recent, epoch, 10)
        found.append(recent.urgency())
    assert found == [Urgency.NONE, Urgency.NONE, Urgency.WORTH_IT], "the ninth counts: thirty of 170"


def test_changes_that_wait_for_being_compacted_are_no_state() -> None:
    """Else more would be kept, and less be worth it, the more had piled up."""
    changelog = 1600
    recent = ManifestRetention(
        most=100, spare_bytes=0, changelogs=[CHANGELOG], changelog_sizes=lambda: [changelog]
    )
    recent.resume([])
    there = [commit(recent, epoch, 120) for epoch in range(1, 10)]
    changelog += 9 * 120
    assert recent.urgency() is Urgency.BACKPRESSURE, "seven of them, and 800 are half of the state"
    recent.resume(there)
    assert recent.urgency() is Urgency.BACKPRESSURE, "whoever takes over sees the same"
    changelog -= 7 * 120
    recent.maintained(recent.gone)
    commit(recent, 10, 120)
    assert recent.urgency() is Urgency.NONE
    commit(recent, 11, 120)
    assert recent.urgency() is Urgency.WORTH_IT


def test_where_there_is_no_state_everything_presses() -> None:
    recent = of_state(0)
    oldest_ones(recent, [1, 1])
    assert recent.urgency() is Urgency.NONE
    commit(recent, 3, 1)
    assert recent.urgency() is Urgency.BACKPRESSURE


def test_it_goes_on_with_what_is_there() -> None:
    before = of_state(800)
    there = [commit(before, epoch, 25) for epoch in range(1, 6)]
    assert there[-1].oldest == 4
    after = of_state(800)
    after.resume(there)
    assert commit(after, 6, 25).oldest == 5
    assert after.urgency() is Urgency.WORTH_IT, "four that nobody has tidied up behind"
    after.resume(there[3:])
    assert after.urgency() is Urgency.NONE, "somebody has removed the manifests before"


def test_many_epochs_of_short_lives_are_worth_it_but_never_press() -> None:
    there: list[Manifest] = []
    for life in range(20):
        recent = of_state(None, most=10)
        recent.resume(there)
        assert recent.urgency() is (Urgency.WORTH_IT if life * 3 >= 20 else Urgency.NONE)
        there += [commit(recent, 3 * life + number, 1) for number in (1, 2, 3)]
    recent.maintained(recent.gone)
    assert recent.urgency() is Urgency.NONE
