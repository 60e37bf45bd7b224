"""A table without a changelog on Spark: its state comes back from its source topic."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import Any

from tests.spark.lab import Lab

from millstream import StreamsBuilder, Topology, serdes


def per_city() -> Topology:
    builder = StreamsBuilder()
    users: Any = builder.table("users", key=serdes.string, value=serdes.string, store="users")
    cities = users.group_by(lambda name, city: (city, name)).count(store="per-city")
    cities.to_stream().to("cities", key=serdes.string, value=serdes.int64)
    return builder.build(optimization="all")


def test_a_lost_disk_comes_back_from_the_source_topic(lab: Lab) -> None:
    names = [f"user{number}" for number in range(40)]
    users = [dict.fromkeys(names[:20], "rome"), dict.fromkeys(names[20:], "oslo")]
    lab.topic("users", [list(part.items()) for part in users])
    lab.run(per_city(), max_records_per_epoch=7)
    assert "app-users-changelog" not in lab.log.topics()
    shutil.rmtree(lab.state_dir)
    moved = dict.fromkeys(names[5:15], "bonn")
    lab.append("users", list(moved.items()))
    app = lab.run(per_city())
    now = {**users[0], **moved, **users[1]}
    assert dict(app.store("users").all()) == now
    assert lab.last_by_key("cities") == dict(Counter(now.values()))
