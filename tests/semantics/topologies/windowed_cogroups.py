"""cogroup in windows: each input stream has a stream time of its own."""

from __future__ import annotations

from functools import partial

from tests.semantics.registry import case, dsl
from tests.semantics.shapes import NUMBERS, WORDS, numbers, text, words
from tests.semantics.window_shapes import KEEP, UNLIMITED_MS, in_windows, word_windows

from millstream import (
    CogroupedKStream,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    serdes,
)

IN_WINDOWS: dict[str, tuple[TimeWindows | SlidingWindows, Store]] = {
    "windowed_cogroup": (TimeWindows(10), word_windows("all", KEEP)),
    "windowed_cogroup_with_grace": (TimeWindows(10, grace=5), word_windows("all", KEEP)),
    "windowed_cogroup_uncached": (
        TimeWindows(10, advance=5, grace=5),
        word_windows("all", KEEP, caching=False),
    ),
    "windowed_cogroup_sliding": (SlidingWindows(10, grace=5), word_windows("all", KEEP)),
    "windowed_cogroup_sliding_uncached": (
        SlidingWindows(10, grace=5),
        word_windows("all", KEEP, caching=False),
    ),
    "windowed_cogroup_random": (TimeWindows(10, grace=5), word_windows("all", KEEP)),
    "windowed_cogroup_uncached_random": (
        TimeWindows(10, advance=5, grace=5),
        word_windows("all", KEEP, caching=False),
    ),
    "windowed_cogroup_sliding_random": (SlidingWindows(10, grace=5), word_windows("all", KEEP)),
}

IN_SESSIONS = {
    "windowed_cogroup_sessions": (SessionWindows(5), word_windows("all", KEEP)),
    "windowed_cogroup_sessions_uncached": (
        SessionWindows(5, grace=5),
        word_windows("all", KEEP, caching=False),
    ),
    "windowed_cogroup_sessions_random": (SessionWindows(4, grace=8), word_windows("all", KEEP)),
    "windowed_cogroup_sessions_uncached_random": (
        SessionWindows(4, grace=8),
        word_windows("all", KEEP, caching=False),
    ),
}


def _append(key: str, value: object, agg: str) -> str:
    return f"{agg} {text(value)}"


def _both(b: StreamsBuilder) -> CogroupedKStream[str, str]:
    cogrouped: CogroupedKStream[str, str] = words(b, "words").group_by_key(**WORDS).cogroup(_append)
    return cogrouped.cogroup(numbers(b, "numbers").group_by_key(**NUMBERS), _append)


def _in_windows(b: StreamsBuilder, windows: TimeWindows | SlidingWindows, store: Store) -> None:
    _both(b).windowed_by(windows).aggregate(lambda: "", store=store).to_stream().to("out")


def _in_sessions(b: StreamsBuilder, windows: SessionWindows, store: Store) -> None:
    windowed = _both(b).windowed_by(windows)
    sessions = windowed.aggregate(lambda: "", lambda k, one, other: f"{one}+{other}", store=store)
    sessions.to_stream().to("out")


def _register() -> None:
    for name, (windows, store) in IN_WINDOWS.items():
        case(name, partial(_in_windows, windows=windows, store=store))
    for name, (sessions, store) in IN_SESSIONS.items():
        case(name, partial(_in_sessions, windows=sessions, store=store))


_register()


@dsl
def windowed_cogroup_of_one(b: StreamsBuilder) -> None:
    cogrouped: CogroupedKStream[str, str] = words(b, "words").group_by_key(**WORDS).cogroup(_append)
    windowed = cogrouped.windowed_by(TimeWindows(10))
    windowed.aggregate(lambda: "", store=word_windows("all", KEEP)).to_stream().to("out")


@dsl
def windowed_cogroup_named(b: StreamsBuilder) -> None:
    windowed = _both(b).windowed_by(TimeWindows(10))
    windowed.aggregate(lambda: "", name="together", store=word_windows("all", KEEP)).to_stream().to("out")


@dsl
def windowed_cogroup_unnamed_store(b: StreamsBuilder) -> None:
    store = Store(**WORDS, retention=KEEP)
    table = _both(b).windowed_by(TimeWindows(10)).aggregate(lambda: "", store=store)
    table.to_stream().to("out", key=in_windows(10), value=serdes.string)


@dsl
def windowed_cogroup_of_rekeyed_streams(b: StreamsBuilder) -> None:
    by_word = words(b, "words").group_by(lambda k, v: v, **WORDS, name="by-word")
    by_number = numbers(b, "numbers").group_by(lambda k, v: f"w{text(v)}", **NUMBERS, name="by-number")
    cogrouped: CogroupedKStream[str, str] = by_word.cogroup(_append)
    windowed = cogrouped.cogroup(by_number, _append).windowed_by(TimeWindows(10))
    windowed.aggregate(lambda: "", store=word_windows("all", KEEP)).to_stream().to("out")


@dsl
def windowed_cogroup_unlimited(b: StreamsBuilder) -> None:
    table = _both(b).windowed_by(UnlimitedWindows()).aggregate(lambda: "", store=word_windows("all"))
    table.to_stream().to("out", key=in_windows(UNLIMITED_MS), value=serdes.string)


@dsl
def windowed_cogroup_then_suppress(b: StreamsBuilder) -> None:
    windowed = _both(b).windowed_by(TimeWindows(10, grace=5))
    table = windowed.aggregate(lambda: "", store=word_windows("all", KEEP))
    table.suppress(Suppressed.until_window_closes()).to_stream().to("out")
