"""``millstream topics`` through click's runner: text in, text out, good messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from millstream.cli.main import millstream
from millstream.log import FileLog, Producer, TopicPartition, record_batch
from millstream.types import Partition

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder and return what it printed; it must end with ``status``."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, stdin: str | bytes = "", status: int = 0) -> Result:
        result = CliRunner().invoke(millstream, ["topics", *words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    return run


def test_a_topic_is_created_listed_and_described(run: Run) -> None:
    assert run("create", "lines", "-p", "2").stderr == "Created topic 'lines' (partitions: 2).\n"
    run("create", "events", "--timestamps", "append-time")
    assert run("list").stdout == "events\nlines\n"
    run("produce", "lines", "--partition", "1", stdin="a\nb\n")
    assert run("describe", "lines").stdout.splitlines() == [
        "lines: 2 partitions, create-time, 2 records",
        "partition      earliest        latest       records",
        "        0             0             0             0",
        "        1             0             2             2",
    ]
    assert "append-time" in run("describe", "events").stdout
    assert [path.name for path in Path.cwd().iterdir()] == ["millstream-data"]


@pytest.mark.parametrize("kind", ["append-time", "LogAppendTime"])
def test_a_topic_of_ingestion_time_gives_its_records_the_time_of_their_arrival(run: Run, kind: str) -> None:
    run("create", "events", "--timestamp-type", kind)
    run("produce", "events", "--timestamp", "5", stdin="a\n")
    (line,) = run("consume", "events", "--json").stdout.splitlines()
    assert json.loads(line)["timestamp"] > 1_700_000_000_000
    assert "append-time" in run("describe", "events").stdout
    assert (
        "Invalid value for '--timestamp-type'" in run("create", "x", "--timestamp-type", "x", status=2).stderr
    )


def test_a_topic_keeps_what_it_was_told_to_keep(run: Run) -> None:
    run("create", "clicks", "--retention-ms", "1000", "--retention-bytes", "5000", "--compact")
    assert run("describe", "clicks").stdout.splitlines()[0] == (
        "clicks: 1 partitions, create-time, 0 records, keeps for 1,000 ms and 5,000 bytes of a partition and "
        "the last of each key"
    )
    assert "Invalid value for '--retention-ms'" in run("create", "x", "--retention-ms", "-1", status=2).stderr


def test_tidy_is_another_name_of_compact(run: Run) -> None:
    run("create", "lines")
    assert run("compact").stderr == run("tidy").stderr == "lines: 0 partitions rewritten, 0 records let go.\n"
    assert "another name of this command" in run("compact", "--help").stdout


def test_topics_are_tidied(run: Run) -> None:
    run("create", "customers", "--compact")
    run("create", "clicks", "--retention-ms", "1000")
    for number in range(3):
        run("produce", "customers", "--key-separator", ":", stdin=f"ann:{number}\nbob:{number}\n")
        run("produce", "clicks", "--json", stdin=json.dumps({"value": str(number), "timestamp": 5}) + "\n")
    assert run("tidy").stderr.splitlines() == [
        "clicks: 0 partitions rewritten, 3 records let go.",
        "customers: 1 partitions rewritten, 0 records let go.",
    ]
    assert run("consume", "clicks").stdout == ""
    rows = [json.loads(line) for line in run("consume", "customers", "--json").stdout.splitlines()]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(4, "ann", "2"), (5, "bob", "2")]


def test_a_topic_is_given_more_partitions(run: Run) -> None:
    run("create", "lines")
    assert run("alter", "lines", "-p", "3").stderr == "Topic 'lines' has 3 partitions now (before: 1).\n"
    assert run("describe", "lines").stdout.startswith("lines: 3 partitions")
    assert "partitions can only be added" in run("alter", "lines", "-p", "2", status=1).stderr


def test_creating_a_topic_again_is_an_error_unless_told_otherwise(run: Run) -> None:
    run("create", "lines")
    assert "Error: Topic 'lines' is there already." in run("create", "lines", status=1).stderr
    assert run("create", "lines", "--if-missing").stderr == "Topic 'lines' is there already.\n"


def test_lines_go_in_and_come_out(run: Run) -> None:
    run("create", "lines")
    assert run("produce", "lines", stdin="to the\n\nriver").stderr == "Appended 3 records to 'lines'.\n"
    assert run("consume", "lines").stdout == "to the\n\nriver\n"


def test_line_ends_of_other_systems_are_dropped(run: Run) -> None:
    run("create", "lines")
    run("produce", "lines", stdin=b"a\r\nb\r\n")
    assert run("consume", "lines").stdout == "a\nb\n"


def test_files_are_read_one_after_the_other_and_a_dash_is_standard_input(run: Run, tmp_path: Path) -> None:
    run("create", "lines")
    (tmp_path / "one.txt").write_text("1\n")
    (tmp_path / "two.txt").write_text("3\n")
    run("produce", "lines", "one.txt", "-", "two.txt", stdin="2\n")
    assert run("consume", "lines").stdout == "1\n2\n3\n"


def test_keys_stand_before_a_separator(run: Run) -> None:
    run("create", "lines", "-p", "4")
    run("produce", "lines", "--key-separator", ": ", stdin="a: 1\nb: 2: 3\na: 4\n")
    shown = run("consume", "lines", "--key-separator", " = ").stdout.splitlines()
    assert sorted(shown) == ["a = 1", "a = 4", "b = 2: 3"]
    assert shown.index("a = 1") < shown.index("a = 4")


def test_one_key_and_headers_for_all_records(run: Run) -> None:
    run("create", "lines")
    run(
        "produce", "lines", "--key", "k", "-H", "host=web1", "-H", "host=a=b", "--timestamp", "5", stdin="v\n"
    )
    assert json.loads(run("consume", "lines", "--json").stdout) == {
        "partition": 0,
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value": "v",
        "headers": [["host", "web1"], ["host", "a=b"]],
    }


@pytest.mark.parametrize(
    ("form", "text", "stored"),
    [
        ("string", "née", "née".encode()),
        ("int64", "-42", (-42).to_bytes(8, "big", signed=True)),
        ("json", '{"b": [1, null]}', b'{"b": [1, null]}'),
        ("hex", "00ff10", b"\x00\xff\x10"),
    ],
)
def test_formats_of_keys_and_values(run: Run, form: str, text: str, stored: bytes) -> None:
    run("create", "lines")
    options = ("--key-format", form, "--value-format", form, "--key-separator", "|")
    run("produce", "lines", *options, stdin=f"{text}|{text}\n")
    (batch,) = FileLog("millstream-data").read(TopicPartition("lines", Partition(0)), 0)  # type: ignore[arg-type]
    assert (batch.keys(), batch.values()) == ([stored], [stored])
    assert run("consume", "lines", *options).stdout == f"{text}|{text}\n"


@pytest.mark.parametrize(
    ("form", "value", "stored"),
    [
        ("string", "née", "née".encode()),
        ("string", "", b""),
        ("int64", 42, (42).to_bytes(8, "big")),
        ("json", {"b": [1, None]}, b'{"b":[1,null]}'),
        ("hex", "00ff", b"\x00\xff"),
        ("hex", None, None),
    ],
)
def test_json_lines_go_in_and_come_out(run: Run, form: str, value: object, stored: bytes | None) -> None:
    run("create", "lines")
    formats = ("--json", "--key-format", form, "--value-format", form)
    line = {
        "key": value,
        "value": value,
        "timestamp": 7,
        "headers": {"t": "x", "raw": {"hex": "ff"}, "n": None},
    }
    run("produce", "lines", *formats, stdin=json.dumps(line) + "\n")
    (batch,) = FileLog("millstream-data").read(TopicPartition("lines", Partition(0)), 0)  # type: ignore[arg-type]
    assert (batch.keys(), batch.values(), batch.timestamps()) == ([stored], [stored], [7])
    assert batch.headers() == [(("t", b"x"), ("raw", b"\xff"), ("n", None))]
    shown = run("consume", "lines", *formats).stdout
    assert json.loads(shown) == {
        **line,
        "partition": 0,
        "offset": 0,
        "headers": [["t", "x"], ["raw", {"hex": "ff"}], ["n", None]],
    }
    run("produce", "lines", *formats, stdin=shown)
    first, second = (json.loads(each) for each in run("consume", "lines", *formats).stdout.splitlines())
    assert second == {**first, "offset": 1}


def test_null_can_be_written_and_is_shown(run: Run) -> None:
    run("create", "lines")
    run("produce", "lines", "--null-marker", "<none>", stdin="<none>\nx\n")
    assert run("consume", "lines").stdout == "null\nx\n"
    assert run("consume", "lines", "--null-marker", "-", "--key-separator", "|").stdout == "-|-\n-|x\n"


def test_where_to_begin_and_when_to_stop(run: Run) -> None:
    run("create", "lines")
    run("produce", "lines", stdin="".join(f"{i}\n" for i in range(10)))
    assert run("consume", "lines", "--from-beginning", "--max-messages", "2").stdout == "0\n1\n"
    assert run("consume", "lines", "--offset", "8").stdout == "8\n9\n"
    assert run("consume", "lines", "--offset", "10").stdout == ""
    assert run("consume", "lines", "--max-messages", "0").stdout == ""
    assert run("consume", "lines", "--offset", "3", "--max-messages", "1", "--follow").stdout == "3\n"
    assert "it ends at 10" in run("consume", "lines", "--offset", "11", status=1).stderr


def test_only_one_partition_is_shown_on_demand(run: Run) -> None:
    run("create", "lines", "-p", "2")
    for number in ("0", "1"):
        run("produce", "lines", "--partition", number, stdin=f"in {number}\n")
    assert run("consume", "lines").stdout == "in 0\nin 1\n"
    assert run("consume", "lines", "--partition", "1").stdout == "in 1\n"


def test_a_bad_line_is_named_and_what_stood_before_it_is_kept(run: Run) -> None:
    run("create", "lines")
    error = run("produce", "lines", "--value-format", "int64", stdin="1\n2\nthree\n4\n", status=1).stderr
    assert error.startswith("Error: Line 3 of standard input can't be read:")
    assert "The line: 'three'. The 2 lines before it have been appended." in error
    assert run("consume", "lines", "--value-format", "int64").stdout == "1\n2\n"


@pytest.mark.parametrize(
    ("options", "line", "complaint"),
    [
        (["--json"], "not json", "malformed"),
        (["--json"], '{"value": 7}', "expected text, got int"),
        (["--json", "--value-format", "int64"], '{"value": "7"}', "expected int, got str"),
        (["--json"], '{"headers": 7}', "expected an object or a list of pairs"),
        (["--json"], '{"headers": {"a": 7}}', "is not a name with a text, null"),
        (["--value-format", "json"], "{", "can't be read"),
        (["--value-format", "hex"], "0g", "non-hexadecimal"),
        (["--key-separator", ":"], "no colon", "there is no ':' between key and value"),
    ],
)
def test_lines_that_are_not_as_the_options_say(
    run: Run, options: list[str], line: str, complaint: str
) -> None:
    run("create", "lines")
    error = run("produce", "lines", *options, stdin=line + "\n", status=1).stderr
    assert error.startswith("Error: Line 1 of standard input can't be read:")
    assert complaint in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["produce", "lines", "--key", "a", "--key-separator", ":"], "--key and --key-separator contradict"),
        (["produce", "lines", "--json", "--key-separator", ":"], "leave --key-separator"),
        (["produce", "lines", "--key-separator", ""], "--key-separator is empty"),
        (["produce", "lines", "--key", "x", "--key-format", "int64"], "'x' is not int64"),
        (["produce", "lines", "-H", "novalue"], "'novalue' is not of the form NAME=VALUE"),
        (["produce", "lines", "--partition", "7"], "topic 'lines' has no partition 7; choose 0 to 0"),
        (["produce", "lines", "missing.txt"], "missing.txt"),
        (["consume", "lines", "--json", "--key-separator", ":"], "leave --key-separator out"),
        (["consume", "lines", "--from-beginning", "--offset", "1"], "contradict each other"),
        (["consume", "lines", "--partition", "1"], "has no partition 1"),
        (["consume", "lines", "--value-format", "xml"], "for --value-format: 'xml' is not one of"),
        (["consume", "lines", "--from", "yesterday"], "for --from: 'yesterday' is no time"),
        (["create", "lines", "-p", "0"], "0 is not in the range"),
    ],
)
def test_options_that_can_t_be_are_explained(run: Run, words: list[str], complaint: str) -> None:
    run("create", "lines")
    assert complaint in run(*words, status=2).stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["list"], "There is no log in millstream-data"),
        (["consume", "lines"], "There is no log in millstream-data"),
        (["list", "--log", "nonsense"], "'nonsense' is not the address of a log"),
        (["create", "a/b"], "A topic can't be called 'a/b'"),
    ],
)
def test_errors_are_messages_with_a_remedy(run: Run, words: list[str], complaint: str) -> None:
    error = run(*words, status=1).stderr
    assert error.startswith("Error: ")
    assert complaint in error
    assert "Remedy: " in error


def test_an_unknown_topic_lists_those_that_exist(run: Run) -> None:
    run("create", "lines")
    assert "Topics: lines." in run("consume", "line", status=1).stderr
    assert "Topics: lines." in run("produce", "line", status=1).stderr


def test_a_value_that_is_not_in_the_format_is_named_by_its_offset(run: Run) -> None:
    run("create", "lines")
    run("produce", "lines", stdin="a\nb\n")
    error = run("consume", "lines", "--offset", "1", "--value-format", "int64", status=1).stderr
    assert "The value at offset 1 of lines-0 is not int64" in error
    assert "choose another --value-format; hex shows anything" in error


def test_a_value_that_is_not_text_is_shown_as_it_is_but_not_as_json(run: Run) -> None:
    run("create", "lines")
    with Producer(FileLog("millstream-data"), "lines") as producer:
        producer.send(None, b"\xff\xfe")
    assert run("consume", "lines").stdout_bytes == b"\xff\xfe\n"
    assert "offset 0 of lines-0 is not string" in run("consume", "lines", "--json", status=1).stderr


def test_the_log_can_be_named_by_option_and_by_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("create", "lines", "--log", "file:./elsewhere")
    assert run("list", "--log", "file:elsewhere").stdout == "lines\n"
    monkeypatch.setenv("MILLSTREAM_LOG", "file:elsewhere")
    assert run("list").stdout == "lines\n"


def test_many_records_are_shown_in_order(run: Run) -> None:
    run("create", "lines")
    log = FileLog("millstream-data")
    count = 30_000
    batch = record_batch([None] * count, [b"%d" % i for i in range(count)], [0] * count)
    log.append(TopicPartition("lines", Partition(0)), batch)
    assert run("consume", "lines").stdout == "".join(f"{i}\n" for i in range(count))
    assert run("consume", "lines", "--max-messages", "3", "--offset", "9000").stdout == "9000\n9001\n9002\n"


@pytest.mark.parametrize("command", ["create", "list", "describe", "produce", "consume"])
def test_help_tells_how_to_use_it(run: Run, command: str) -> None:
    shown = run(command, "--help").stdout
    assert f"Usage: millstream topics {command}" in shown
    if command in ("create", "produce", "consume"):
        assert f"\n    millstream topics {command} " in shown


@pytest.mark.parametrize(
    ("windows", "window", "shown"),
    [
        ("60000", (60_000).to_bytes(8), {"start": 60_000, "end": 120_000, "key": "ann"}),
        ("sessions", (9).to_bytes(8) + (5).to_bytes(8), {"start": 5, "end": 9, "key": "ann"}),
    ],
)
def test_keys_with_a_window_are_shown_as_start_end_and_key(
    run: Run, windows: str, window: bytes, shown: dict[str, object]
) -> None:
    run("create", "counts")
    log = FileLog(Path("millstream-data"))
    log.append(TopicPartition("counts", Partition(0)), record_batch([b"ann" + window], [b"3"], [7]))
    options = ("--windows", windows)
    assert json.loads(run("consume", "counts", "--json", *options).stdout)["key"] == shown
    line = run("consume", "counts", "--key-separator", "\t", *options).stdout
    assert line == f"{shown['start']}\t{shown['end']}\tann\t3\n"


def test_windows_of_no_size_are_refused(run: Run) -> None:
    run("create", "counts")
    message = run("consume", "counts", "--windows", "0", status=2).stderr
    assert "'0' is neither a size in milliseconds nor \"sessions\"" in message


def test_a_key_without_a_window_says_what_to_do(run: Run) -> None:
    run("create", "counts")
    run("produce", "counts", "--key", "ann", stdin="3\n")
    message = run("consume", "counts", "--json", "--windows", "60000", status=1).stderr
    assert "The key at offset 0 of counts-0 is not string with a window" in message
