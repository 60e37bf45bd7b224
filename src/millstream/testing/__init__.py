"""Tests of topologies in milliseconds, without Spark, JVM or disk.

`TopologyTestDriver` runs the production task; only the edges (topics, clock, stores' backend) are
replaced. Nothing in the library imports this package.
"""

from __future__ import annotations

from millstream.testing.driver import TopologyTestDriver
from millstream.testing.topics import TestInputTopic, TestOutputTopic

__all__ = ["TestInputTopic", "TestOutputTopic", "TopologyTestDriver"]
