"""A program to be killed: a streaming frame of files as a stream, and a topic copied by a streaming query.

It has a SparkSession of its own, made as anybody makes one. ``python frame_child.py FOLDER``
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream import Streams, StreamsBuilder, StreamsConfig, serdes
from millstream import spark as millstream_spark
from millstream.engine.spark.java import ensure_java

READINGS = "sensor STRING, number BIGINT, at TIMESTAMP"


def program(session: Any, folder: Path) -> StreamsBuilder:
    """Numbers of sensors out of files, a file a batch, each number times ten."""
    files = session.readStream.schema(READINGS).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    builder = StreamsBuilder()
    readings = builder.stream_from(
        files, key="sensor", value=["number"], timestamp="at", name="readings", partitions=2
    )
    readings.map_values(lambda value: value["number"] * 10).to("tens", value=serdes.int64)
    return builder


def application(session: Any, folder: Path) -> Streams:
    return Streams(
        program(session, folder).build(),
        app_id="sensors",
        log=folder / "log",
        engine="local",
        config=StreamsConfig(state_dir=folder / "state"),
    )


def copying(session: Any, folder: Path) -> Any:
    """A streaming query that copies the topic `numbers` to `copies`, a few records a batch."""
    millstream_spark.register(session)
    source = (
        session.readStream.format("millstream")
        .option("log", str(folder / "log"))
        .option("key", "string")
        .option("value", "int64")
        .option("maxOffsetsPerTrigger", 10)
        .load("numbers")
    )
    return (
        source.select("key", "value", "timestamp")
        .writeStream.format("millstream")
        .option("log", str(folder / "log"))
        .option("topic", "copies")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )


def main(folder: Path) -> None:
    with ensure_java():
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    copying(session, folder).start()
    with application(session, folder) as app:
        app.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
