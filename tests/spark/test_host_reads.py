"""Stores that are read where they are, on Spark: slots are processes, and epochs go on meanwhile."""

from __future__ import annotations

import pytest
from tests.spark.lab import Lab
from tests.spark.processes import until
from tests.spark.programs import counted, two_levels, words

from millstream import State
from millstream.errors import ConfigError, StoreError

pytestmark = pytest.mark.xdist_group("spark")


def test_counts_are_read_from_the_slots_while_they_go_on_counting(lab: Lab) -> None:
    parts = words(400, seed=61)
    lab.topic("in", [part[:100] for part in parts])
    with lab.app(two_levels(), engine="resident", max_records_per_epoch=20) as app:
        assert app.store("counts", read_from="active").get("river") is None, "nothing is committed yet"
        app.start()
        until(lambda: app.state is State.RUNNING, "it runs")
        counts, standbys = app.store("counts", read_from="active"), app.store("counts", read_from="standby")
        assert app.store("counts", read_from="active") is not counts, "one for each thread that asks"
        first = counted([part[:100] for part in parts])
        until(lambda: dict(counts.all()) == first, "the first records are committed")
        assert dict(app.store("counts").all()) == first
        assert counts.version == app.store("counts").version
        for number, part in enumerate(parts):
            lab.append("in", part[100:], partition=number)
        seen = [counts.get("river")]
        while lab.committed() < 400:
            seen.append(counts.get("river"))
        assert seen == sorted(seen)
        expected = counted(parts)
        until(lambda: dict(counts.all()) == expected, "the last commit is told")
        assert dict(app.store("counts").all()) == expected
        assert {word: counts.get(word) for word in expected} == expected
        assert dict(standbys.all()) == expected, "there are none, so the active ones are asked"
        assert len(counts) == counts.approximate_num_entries() == len(expected)
        metadata = app.query_metadata("counts", "river")
        places = [one for one in app.assignment() if one.task == metadata.task and one.role == "active"]
        assert [one.host for one in places] == [metadata.active_host]
    with pytest.raises(StoreError, match="does not run in this process"):
        counts.get("river")


@pytest.mark.parametrize("engine", ["jobs", "local"])
def test_engines_without_processes_that_stay_refuse_it_with_a_remedy(bare_lab: Lab, engine: str) -> None:
    with bare_lab.app(two_levels(), engine=engine) as app:
        said = f"read_from='standby' with engine='{engine}', .* Remedy: read_from=\"replica\""
        with pytest.raises(ConfigError, match=said):
            app.store("counts", read_from="standby")
        with pytest.raises(ConfigError, match="give one of 'replica', 'active', 'standby'"):
            app.store("counts", read_from="leader")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="max_staleness_ms=-1"):
            app.store("counts", max_staleness_ms=-1)
