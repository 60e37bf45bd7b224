"""Word count on the cluster that spark-submit has chosen: see docs/cluster.md.

The log is in a folder that all hosts see, local state on a disk of each host.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from millstream import Streams, StreamsBuilder, StreamsConfig, Topology, serdes


def topology() -> Topology:
    """Counts the words of the lines."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", value=serdes.string)
    words = lines.flat_map_values(str.split).group_by(lambda _, word: word, key=serdes.string)
    words.count(store="counts").to_stream().to("word-counts", key=serdes.string, value=serdes.int64)
    return builder.build()


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True, help="A folder that all hosts see.")
    parser.add_argument("--state-dir", default="/var/lib/millstream", help="On each host; may have {host}.")
    parser.add_argument("--standby", action="store_true", help="Wait while another driver runs it.")
    given = parser.parse_args()
    config = StreamsConfig(
        engine="resident", num_standby_replicas=1, state_dir=given.state_dir, lease_ttl_ms=4_000
    )
    spark = SparkSession.builder.appName("wordcount").getOrCreate()
    with Streams(
        topology(), app_id="wordcount", log=given.log, spark=spark, config=config, standby=given.standby
    ) as app:
        app.run()


if __name__ == "__main__":
    main()
