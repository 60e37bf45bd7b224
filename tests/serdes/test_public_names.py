from __future__ import annotations

from types import ModuleType

from millstream import serdes

USERS = {
    *("AvroSerde", "ProtobufSerde", "avro", "protobuf"),
    *("Auto", "AutoSerde", "BaseSerde", "JsonSerde", "NullableSerde", "Serde", "SessionWindowedSerde"),
    *(
        "TimeWindowedSerde",
        "TypedJsonSerde",
        "auto",
        "boolean",
        "bytes",
        "double",
        "float32",
        "int16",
        "int32",
    ),
    *("int64", "json", "nullable", "of", "session_windowed", "string", "time_windowed", "uuid"),
}
ENGINES = {
    *(
        "ColumnError",
        "bind",
        "describe_bytes",
        "deserialize_column",
        "find_auto",
        "serde_failure",
        "serde_name",
    ),
    "serialize_column",
}


def test_the_public_names_are_these() -> None:
    assert set(serdes.__all__) == USERS | ENGINES


def test_no_public_name_is_a_module_in_disguise() -> None:
    assert [name for name in serdes.__all__ if isinstance(getattr(serdes, name), ModuleType)] == []


def test_every_ready_made_serde_is_called_as_it_is_imported() -> None:
    names = {
        name for name in serdes.__all__ if hasattr(getattr(serdes, name), "serialize") and name.islower()
    }
    assert {name: repr(getattr(serdes, name)) for name in names} == {name: f"serdes.{name}" for name in names}
