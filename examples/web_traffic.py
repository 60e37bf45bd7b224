"""Who is on which page: a table, its retraction when somebody moves on, and the top of it.

Run it on Spark with `millstream run web_traffic:topology`; here it runs in this process.
"""

from __future__ import annotations

from millstream import Store, StreamsBuilder, serdes
from millstream.testing import TopologyTestDriver

TOP = 2
VISITS: list[tuple[str, str | None, int]] = [  # visitor, page (None: has left), milliseconds
    ("ann", "home", 1),
    ("bob", "home", 2),
    ("cid", "search", 3),
    ("ann", "search", 4),  # one less on "home", one more on "search"
    ("dan", "search", 5),
    ("bob", None, 6),
    ("cid", "cart", 7),
]

Counts = dict[str, int]


def with_page(_: str, row: tuple[str, int], counts: Counts) -> Counts:
    """The counts with a row that is new or has changed."""
    return {**counts, row[0]: row[1]}


def without_page(_: str, row: tuple[str, int], counts: Counts) -> Counts:
    """The counts without a row that is gone, or about to change."""
    return {page: count for page, count in counts.items() if page != row[0]}


builder = StreamsBuilder()
pages = builder.table("pages", key=serdes.string, value=serdes.string)
visitors = (
    pages.group_by(lambda _, page: (page, 1), key=serdes.string, value=serdes.int64)
    .count(store=Store("visitors", caching=False))
    .filter(lambda _, count: count > 0)
)
rows = visitors.group_by(lambda page, count: ("all", (page, count)), key=serdes.string, value=serdes.json)
top = rows.aggregate(Counts, with_page, without_page, store=Store("top", caching=False, value=serdes.json))
busiest = top.to_stream().map_values(
    lambda counts: sorted(counts, key=lambda page: (-counts[page], page))[:TOP]
)
busiest.to("top-pages", key=serdes.string, value=serdes.json)
topology = builder.build()

if __name__ == "__main__":
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("pages", key=serdes.string, value=serdes.string)
        sink = driver.output_topic("top-pages", key=serdes.string, value=serdes.json)
        for visitor, page, time in VISITS:
            source.pipe(visitor, page, timestamp=time)
            print(f"{visitor} -> {page}: {sink.read_values()[-1]}")
