"""Wrong programs that the type checker refuses, each at the line marked `# E: code`.

All of them go through mypy in one run. An error at a line that is not marked is as bad as a missing one. With
`# E: one|other` mypy may put it either way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from textwrap import dedent

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

PRELUDE = """\
from __future__ import annotations

from typing import Any

from millstream import (
    FixedKeyProcessor,
    FixedKeyRecord,
    KTable,
    Processor,
    Record,
    StreamsBuilder,
    StreamsConfig,
    serdes,
)
from millstream.testing import TopologyTestDriver

builder = StreamsBuilder()
words = builder.stream("words", key=serdes.string, value=serdes.string)
lengths = words.map_values(len)
numbers = builder.stream("numbers", key=serdes.int64, value=serdes.double)
documents = builder.stream("documents", key=serdes.string, value=serdes.json({"title": str}))
table = builder.table("table", key=serdes.string, value=serdes.string)


def half(number: int) -> float:
    return number / 2


def describe(key: str, word: str, total: int) -> str:
    return f"{key} {word} {total}"


def add_length(key: str, word: str, total: int) -> int:
    return total + len(word)

"""

REJECTED = {
    "a value serde of another type for to": """
        lengths.to("lengths", value=serdes.string)  # E: arg-type
    """,
    "a key serde of another type for to": """
        lengths.to("lengths", key=serdes.int64)  # E: arg-type
    """,
    "a type instead of a serde": """
        lengths.to("lengths", value=int)  # E: arg-type
    """,
    "a topic extractor that answers a number": """
        words.to(lambda key, word, context: len(word))  # E: return-value
    """,
    "a source whose serde is of another type than was promised": """
        promised: KTable[str, int] = builder.table("a", value=serdes.string)  # E: arg-type
    """,
    "a mapper with an argument of another type": """
        words.map_values(half)  # E: arg-type
    """,
    "a mapper that does with a value what it can't": """
        words.map_values(lambda word: word + 1)  # E: operator
    """,
    "a value that has been mapped and is used as before": """
        lengths.map_values(lambda length: length.upper())  # E: attr-defined
    """,
    "a predicate with one argument": """
        words.filter(lambda word: True)  # E: arg-type
    """,
    "map with something else than a pair": """
        words.map(lambda key, word: word)  # E: return-value
    """,
    "flat_map_values with something that is not iterable": """
        words.flat_map_values(len)  # E: arg-type
    """,
    "merge of streams with different values": """
        words.merge(lengths)  # E: arg-type
    """,
    "a predicate of a branch that misuses the value": """
        words.split().branch(lambda key, word: word.amount > 3)  # E: attr-defined
    """,
    "a group's key serde of another type": """
        words.group_by(lambda key, word: len(word), key=serdes.string)  # E: return-value
    """,
    "a grouped key that is used as before": """
        counts = words.group_by(lambda key, word: len(word)).count()
        counts.to_stream().to("counts", key=serdes.string)  # E: arg-type
    """,
    "a reducer that compares instead of choosing": """
        words.group_by_key().reduce(lambda one, other: one < other)  # E: return-value
    """,
    "a reducer of values that have no order": """
        documents.group_by_key().reduce(max)  # E: arg-type
    """,
    "an aggregator that returns another type than it takes": """
        words.group_by_key().aggregate(lambda: 0, describe)  # E: arg-type|misc
    """,
    "an aggregator that misuses the aggregate": """
        words.group_by_key().aggregate(lambda: 0, lambda key, word, total: total + word)  # E: operator
    """,
    "an aggregator that returns another type than the initializer": """
        words.group_by_key().aggregate(lambda: 0, lambda key, word, total: str(total))  # E: return-value
    """,
    "a source without a serde that is taken for text": """
        builder.stream("raw").map_values(lambda value: value + "!")  # E: operator
    """,
    "an aggregator of other values": """
        numbers.group_by_key().aggregate(lambda: 0, add_length)  # E: arg-type
    """,
    "an aggregate's serde of another type": """
        words.group_by_key().aggregate(lambda: 0, add_length, value=serdes.string)  # E: arg-type|misc
    """,
    "a sum's serde of another type": """
        lengths.group_by_key().sum(value=serdes.string)  # E: arg-type
    """,
    "a count's serde of another type": """
        words.group_by_key().count(value=serdes.string)  # E: arg-type
    """,
    "a count that is taken for something else": """
        counts: KTable[str, str] = words.group_by_key().count()  # E: assignment
    """,
    "cogroup of streams with different keys": """
        words.group_by_key().cogroup(add_length).cogroup(
            numbers.group_by_key(),  # E: arg-type
            lambda key, number, total: total,
        )
    """,
    "a cogroup's initializer of another type": """
        words.group_by_key().cogroup(add_length).aggregate(str)  # E: arg-type
    """,
    "a table's mapper with an argument of another type": """
        table.map_values(half)  # E: arg-type
    """,
    "a table's group_by with something else than a pair": """
        table.group_by(lambda key, word: word)  # E: return-value
    """,
    "a subtractor that returns another type": """
        table.group_by(lambda key, word: (len(word), word)).reduce(
            lambda so_far, new: so_far + new,
            lambda so_far, old: len(so_far),  # E: return-value
        )
    """,
    "an adder that returns another type": """
        def text(length: int, word: str, total: int) -> str:
            return word

        def minus(length: int, word: str, total: int) -> int:
            return total - length

        by_length = table.group_by(lambda key, word: (len(word), word))
        by_length.aggregate(lambda: 0, text, minus)  # E: arg-type|misc
    """,
    "a table's new key that is used as before": """
        by_length = table.to_stream(lambda key, word: len(word))
        by_length.filter(lambda key, word: key.isupper())  # E: attr-defined
    """,
    "a transformer of other values": """
        class Halve:
            def init(self, context: Any) -> None: ...
            def transform(self, key: str, value: int) -> int:
                return value // 2
            def close(self) -> None: ...

        table.transform_values(Halve)  # E: arg-type
    """,
    "a foreign key of another type than the keys of the other table": """
        by_number = builder.table("numbers", key=serdes.int64, value=serdes.string)
        table = builder.table("table", key=serdes.string, value=serdes.string)
        table.foreign_key_join(by_number, describe, half)  # E: arg-type
    """,
    "a join by foreign key with a stream": """
        table = builder.table("table", key=serdes.string, value=serdes.string)
        table.foreign_key_join(words, lambda key, word: word, lambda one, two: one)  # E: arg-type
    """,
    "a processor of other records": """
        class Double(Processor[str, int, str, int]):
            pass

        words.process(Double)  # E: arg-type
    """,
    "a processor that forwards other records than it says": """
        class Echo(Processor[str, str, str, int]):
            def process(self, record: Record[str, str]) -> None:
                self.context.forward(record)  # E: arg-type
    """,
    "a processor where the key must stay": """
        class Echo(Processor[str, str, str, str]):
            pass

        words.process_values(Echo)  # E: arg-type
    """,
    "a fixed key that is changed": """
        class Rename(FixedKeyProcessor[str, str, str]):
            def process(self, record: FixedKeyRecord[str, str]) -> None:
                self.context.forward(record.with_key("other"))  # E: attr-defined
    """,
    "a handler that gives no verdict": """
        StreamsConfig(processing_handler=lambda context, error: None)  # E: return-value
    """,
    "a test that pipes another type": """
        with TopologyTestDriver(builder.build()) as driver:
            topic = driver.input_topic("words", key=serdes.string, value=serdes.string)
            topic.pipe("k", 3)  # E: arg-type
    """,
    "a test that expects another type": """
        with TopologyTestDriver(builder.build()) as driver:
            topic = driver.output_topic("lengths", key=serdes.string, value=serdes.int64)
            first: str = topic.read().value  # E: assignment
    """,
}

Errors = dict[int, set[str]]
"""Lines and the codes of their errors."""


def file_name(case: str) -> str:
    return f"{re.sub('[^a-z]+', '_', case)}.py"


def expected_errors(program: str) -> Errors:
    return {
        number: set(match[1].split("|"))
        for number, line in enumerate(program.splitlines(), 1)
        if (match := re.search(r"# E: ([\w|-]+)$", line))
    }


def check(folder: Path) -> tuple[dict[str, Errors], str]:
    """Errors by file, and what mypy said."""
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--no-pretty", "--show-error-codes"]
    said, crashed, _ = api.run([*settings, "--cache-dir", str(folder / ".cache"), str(folder)])
    assert not crashed, crashed
    found: dict[str, Errors] = defaultdict(lambda: defaultdict(set))
    for path, line, code in re.findall(r"^(.+?):(\d+):.* error: .*\[([\w-]+)\]$", said, re.MULTILINE):
        found[Path(path).name][int(line)].add(code)
    return found, said


def test_wrong_programs_are_refused_where_they_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    programs = {case: PRELUDE + dedent(body).lstrip("\n") for case, body in REJECTED.items()}
    for case, program in programs.items():
        (tmp_path / file_name(case)).write_text(program, encoding="utf-8")
    found, said = check(tmp_path)
    for case, program in programs.items():
        expected, actual = expected_errors(program), found[file_name(case)]
        report = "\n".join([case, program, *(line for line in said.splitlines() if file_name(case) in line)])
        assert expected.keys() == actual.keys(), f"not refused, or in another place: {report}"
        assert all(expected[line] & actual[line] for line in expected), f"for another reason: {report}"
