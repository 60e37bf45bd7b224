"""Random joins, of all kinds: what is drawn of them, and of global tables."""

from __future__ import annotations

from typing import Any

from tests.oracle_fuzz.draws import Draws, Handle
from tests.oracle_fuzz.functions import Function

_KINDS = ("join", "left_join", "outer_join")


class JoinDraws(Draws):
    """Draws joins between the streams and tables that are there."""

    def add_stream_join(self) -> None:
        left = self.stream()
        right = self.partner(left, self.streams)
        value = self.value_type()
        step = self.add(
            "stream_join",
            left.id,
            right.id,
            kind=self.rng.choice(_KINDS),
            join_windows=self.join_windows(),
            named_stores=self.chance(0.3),
            types=(left.key, left.value, right.value),
            **self.joining(left, value),
        )
        self.streams.append(Handle(step, (left.key, value)))

    def add_stream_table_join(self) -> None:
        if not self.tables:
            self.table()
        stream = self.stream()
        tables = [table for table in self.tables if table.key == stream.key]
        if not tables:
            return
        table, value = self.rng.choice(tables[-3:]), self.value_type()
        step = self.add(
            "stream_table_join",
            stream.id,
            table.id,
            kind=self.rng.choice(_KINDS[:2]),
            grace=self.table_grace(table),
            types=(stream.key, stream.value, table.value),
            **self.joining(stream, value),
        )
        self.streams.append(Handle(step, (stream.key, value)))

    def table_grace(self, table: Handle) -> int | None:
        """How long records wait for updates of a versioned table. Others can't be waited for: both refuse."""
        if not self.chance(0.5 if table.versioned else 0.02):
            return None
        grace = self.rng.choice((0, 1, 5, 5, 20))
        self.durations |= {grace}
        return grace

    def add_global_table_join(self) -> None:
        stream, table, value = self.stream(), self.global_table(), self.value_type()
        step = self.add(
            "global_table_join",
            stream.id,
            table.id,
            kind=self.rng.choice(_KINDS[:2]),
            key_of=self.new_key(),
            types=(stream.key, stream.value, table.value),
            **self.joining(stream, value),
        )
        self.streams.append(Handle(step, (stream.key, value)))

    def global_table(self) -> Handle:
        if not self.global_tables or self.chance(0.3):
            types = ("string", self.value_type())
            step = self.add("global_table", topic=self.next_topic(), types=types, named=self.chance(0.5))
            self.global_tables.append(Handle(step, types))
        return self.rng.choice(self.global_tables)

    def add_table_join(self) -> None:
        left = self.table()
        right = self.partner(left, self.tables)
        value = self.value_type()
        store = self.store(optional=True, versions=left.key == "string")
        step = self.add(
            "table_join",
            left.id,
            right.id,
            kind=self.rng.choice(_KINDS),
            store=store,
            types=(left.key, value),
            **(self.joining(left, value) | {"with_key": False}),  # Kafka has no joiner with a key here
        )
        windowed = left.windowed and right.windowed
        versioned = store is not None and store["versioned"] is not None
        self.tables.append(Handle(step, (left.key, value), windowed, versioned))

    def add_foreign_key_join(self) -> None:
        left = self.table()
        rights = [table for table in self.tables if table.key == "string"]
        # Two of them mostly meet again in one task, and then nothing says whose answers are first.
        is_second = any(step["op"] == "foreign_key_join" for step in self.steps) and self.chance(0.9)
        if is_second:
            return
        mine = self.sources_of(left.id)
        others = [table for table in rights if not mine & self.sources_of(table.id)]
        if rights and self.chance(0.1):
            others = rights
        right = self.rng.choice(others) if others else self.new_table()
        value, store = self.value_type(), self.store(optional=True)
        step = self.add(
            "foreign_key_join",
            left.id,
            right.id,
            kind=self.rng.choice(_KINDS[:2]),
            foreign_key=self.new_key(),
            store=store,
            types=(left.key, value),
            **(self.joining(left, value) | {"with_key": False}),
        )
        self.tables.append(Handle(step, (left.key, value)))

    def sources_of(self, step: int) -> set[int]:
        """The sources that records of a step may come from."""
        parents = self.steps[step]["of"]
        return set().union(*(self.sources_of(parent) for parent in parents)) if parents else {step}

    def new_table(self) -> Handle:
        types = ("string", self.value_type())
        step = self.add("table", topic=self.next_topic(), types=types, store=self.store(optional=True))
        self.tables.append(Handle(step, types))
        return self.tables[-1]

    def partner(self, left: Handle, handles: list[Handle]) -> Handle:
        """What something is joined with: something else with the same keys, or sometimes itself."""
        others = [other for other in handles if other.key == left.key and other.id != left.id]
        return left if not others or self.chance(0.1) else self.rng.choice(others[-3:])

    def joining(self, left: Handle, value: str) -> dict[str, Any]:
        """What all joins have."""
        return {
            "joiner": self.joiner(value),
            "with_key": self.chance(0.3),
            "named": self.chance(0.3),
            "from": left.types,
        }

    def joiner(self, value: str) -> Function:
        return {
            "type": value,
            "a": self.rng.choice((1, 1, 3)),
            "b": self.rng.choice((1, 2, 5)),
            "null": self.rng.randrange(5) if self.chance(0.15) else -1,
        }

    def join_windows(self) -> dict[str, int]:
        before = self.rng.choice((0, 1, 2, 5, 10, 10, 20))
        after = before if self.chance(0.4) else self.rng.choice((-before, -2, 0, 1, 5, 10, 30))
        if self.chance(0.3):
            before, after = after, before
        after = max(after, -before)
        grace = self.rng.choice((0, 0, 1, 5, 20))
        bounds = {before, after, grace, before + grace, after + grace, before + after + grace}
        self.durations |= {bound for bound in bounds if bound > 0}
        return {"before": before, "after": after, "grace": grace}

    def next_topic(self) -> str:
        """A topic that nobody reads yet."""
        self.topics += 1
        return f"in{self.topics - 1}"
