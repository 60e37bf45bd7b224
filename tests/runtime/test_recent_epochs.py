"""How many epochs are kept, by what they have sealed."""

from __future__ import annotations

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


def of_state(state_bytes: int | None, *, spare_bytes: int = 0, most: int = 100) -> RecentEpochs:
    return RecentEpochs(
        most=most, spare_bytes=spare_bytes, changelogs={CHANGELOG}, state_bytes=lambda: state_bytes
    )


def test_epochs_are_kept_up_to_a_sixteenth_of_the_state() -> None:
    assert oldest_ones(of_state(1600), [20] * 8) == [1, 1, 1, 1, 1, 2, 3, 4]


def test_what_is_spare_may_be_taken_however_small_the_state_is() -> None:
    assert oldest_ones(of_state(1600, spare_bytes=200), [20] * 12) == [1] * 10 + [2, 3]


def test_there_are_two_however_large_they_are() -> None:
    assert oldest_ones(of_state(1600), [500] * 5) == [1, 1, 2, 3, 4]


def test_there_are_no_more_than_wanted_however_small_they_are() -> None:
    for most in (1, 2, 5):
        assert oldest_ones(of_state(0, spare_bytes=1000, most=most), [1] * 7)[-1] == 7 - most + 1


def test_all_are_kept_where_state_can_not_be_told() -> None:
    recent = of_state(None)
    assert oldest_ones(recent, [500] * 10) == [1] * 10
    assert not recent.have_much


def test_an_epoch_that_is_not_committed_does_not_count() -> None:
    recent = of_state(160)
    oldest_ones(recent, [5, 5, 5])
    for _ in range(3):
        assert recent.oldest_with(4, [entry(4, 5)]) == 3
    assert not recent.have_much


def test_there_is_much_to_do_when_an_eighth_is_new() -> None:
    recent = of_state(160)
    oldest_ones(recent, [5] * 4)
    assert not recent.have_much
    commit(recent, 5, 1)
    assert recent.have_much


def test_outputs_are_kept_like_changes_but_nothing_to_tidy_up() -> None:
    recent = of_state(120)
    kept = [commit(recent, epoch, 50, "counts").oldest for epoch in range(1, 6)]
    assert kept == [1, 1, 2, 3, 4]
    assert not recent.have_much


def test_and_again_when_all_epochs_that_are_kept_stand_behind_what_was_closed() -> None:
    recent = of_state(160)
    oldest_ones(recent, [5] * 5)
    recent.tended(5)
    assert not recent.have_much
    assert commit(recent, 6, 5).oldest == 5
    assert recent.have_much
    recent.tended(6)
    for epoch in (7, 8, 9):
        assert not recent.have_much
        commit(recent, epoch, 5)
    assert not recent.have_much
    commit(recent, 10, 1)
    assert recent.have_much, "all that came since segments were closed is new"


def test_it_goes_on_with_what_is_there() -> None:
    before = of_state(800)
    there = [commit(before, epoch, 25) for epoch in range(1, 6)]
    assert there[-1].oldest == 4
    after = of_state(800)
    after.resume(there)
    assert commit(after, 6, 25).oldest == 5
    assert after.have_much, "five that nobody has tidied up behind, and one"
    after.resume(there[3:])
    assert not after.have_much, "somebody has removed the manifests before"


def test_there_is_much_to_do_after_many_epochs_of_short_lives() -> None:
    there: list[Manifest] = []
    for life in range(8):
        recent = of_state(None, most=10)
        recent.resume(there)
        assert recent.have_much == (life * 3 >= 20)
        there += [commit(recent, 3 * life + number, 1) for number in (1, 2, 3)]
    recent.tended(None)
    assert not recent.have_much
