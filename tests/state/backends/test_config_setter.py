"""`rocksdb_config_setter`: how it is named, what it may change, and what it is told when it can't be used."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from rocksdict import BlockBasedOptions, DBCompactionStyle, Options, SliceTransform
from tests.state.small_app import SmallApp

from millstream import StreamsConfig
from millstream.errors import ConfigError
from millstream.state.backends import supplier
from millstream.state.backends.config_setter import ConfigSetter
from millstream.state.backends.rocksdb import RocksDbSupplier


def few_open_files(store: str, options: Options, table: BlockBasedOptions) -> None:
    del store, table
    options.set_max_open_files(123)


class FewOpenFiles:
    """As Kafka has it."""

    def set_config(self, store: str, options: Options, table: BlockBasedOptions) -> None:
        few_open_files(store, options, table)


def options_of(store: Path) -> str:
    return max(store.glob("OPTIONS-*")).read_text()


@pytest.mark.parametrize(
    "choice",
    [
        few_open_files,
        FewOpenFiles,
        FewOpenFiles().set_config,
        f"{__name__}.few_open_files",
        f"{__name__}:few_open_files",
        f"{__name__}.FewOpenFiles",
    ],
)
def test_a_setter_is_a_function_a_class_or_the_name_of_one(choice: object, tmp_path: Path) -> None:
    with supplier("rocksdb", rocksdb_config_setter=choice).open(tmp_path / "counts"):
        pass
    assert "max_open_files=123" in options_of(tmp_path / "counts")


def test_other_backends_do_not_look_at_it(tmp_path: Path) -> None:
    with supplier("lmdb", rocksdb_config_setter="no.such.thing").open(tmp_path / "counts") as store:
        assert store.marker() is None


def test_a_supplier_of_the_users_own_has_its_own(tmp_path: Path) -> None:
    with supplier(RocksDbSupplier(), rocksdb_config_setter=few_open_files).open(tmp_path / "counts"):
        pass
    assert "max_open_files=123" not in options_of(tmp_path / "counts")


def test_an_application_gives_it_to_its_stores(tmp_path: Path) -> None:
    app = SmallApp(
        tmp_path / "app", "rocksdb", config=StreamsConfig(rocksdb_config_setter=f"{__name__}.few_open_files")
    )
    app.create()
    app.append("a", "b")
    with app.start() as executor:
        executor.run_until_caught_up()
    assert "max_open_files=123" in options_of(app.task_folder / "rocksdb" / "counts")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("no.such.thing", "is 'no.such.thing', which can't be imported (No module named 'no')"),
        (
            "tests.state.nothing",
            "is 'tests.state.nothing', which can't be imported (module 'tests.state' has",
        ),
        ("nothing", "is 'nothing', which can't be imported"),
        (5, "is 5, which can't be called. Remedy: give a function that takes a store's name, its Options"),
        (Path, "which can't be called"),
    ],
)
def test_what_is_no_setter_is_refused(choice: object, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        supplier("rocksdb", rocksdb_config_setter=choice)


def test_a_setter_that_fails_is_named_with_its_store(tmp_path: Path) -> None:
    def broken(store: str, options: Options, table: BlockBasedOptions) -> None:
        raise AttributeError("set_no_such_option")

    with pytest.raises(ConfigError) as caught:
        RocksDbSupplier(config_setter=broken).open(tmp_path / "counts")
    assert "failed on store 'counts': AttributeError: set_no_such_option." in str(caught.value)


def test_options_that_a_store_can_not_be_opened_without_stay(tmp_path: Path) -> None:
    def closed(store: str, options: Options, table: BlockBasedOptions) -> None:
        del store, table
        options.create_if_missing(False)
        options.set_error_if_exists(True)

    for _ in range(2):
        with RocksDbSupplier(config_setter=closed).open(tmp_path / "counts") as store:
            store.write([(b"a", b"1")], marker=b"v1")


def forgetful(store: str, options: Options, table: BlockBasedOptions) -> None:
    del store, table
    options.set_compaction_style(DBCompactionStyle.fifo())


def by_prefix(store: str, options: Options, table: BlockBasedOptions) -> None:
    del store, table
    options.set_prefix_extractor(SliceTransform.create_fixed_prefix(4))


def recycling(store: str, options: Options, table: BlockBasedOptions) -> None:
    del store, table
    options.set_recycle_log_file_num(2)


def elsewhere(store: str, options: Options, table: BlockBasedOptions) -> None:
    del store, table
    options.set_wal_dir(tempfile.mkdtemp())


@pytest.mark.parametrize(
    ("setter", "message"),
    [
        (recycling, "a recycled file can't be told from a damaged one"),
        (elsewhere, "a store is one folder, which can be removed and copied"),
        (
            forgetful,
            "set compaction_style=kCompactionStyleFIFO for the store {}: that compaction deletes rows.",
        ),
        (
            by_prefix,
            "set prefix_extractor=rocksdb.FixedPrefix.4 for the store {}: scans would not see all rows.",
        ),
    ],
)
def test_options_with_which_rows_would_be_lost_are_refused(
    setter: ConfigSetter, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message.format(tmp_path / "counts"))):
        RocksDbSupplier(config_setter=setter).open(tmp_path / "counts")
    with RocksDbSupplier().open(tmp_path / "counts") as store:  # it was let go
        assert store.marker() is None
