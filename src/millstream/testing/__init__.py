"""Tests of topologies in milliseconds, without Spark, JVM or disk.

`TopologyTestDriver` runs the production task; only the edges (topics, clock, stores' backend) are
replaced. Nothing in the library imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.testing.driver import TopologyTestDriver
    from millstream.testing.topics import TestInputTopic, TestOutputTopic

__all__ = ["TestInputTopic", "TestOutputTopic", "TopologyTestDriver"]


def __getattr__(name: str) -> Any:
    """Import the driver when it is asked for: pytest loads this package to find the plugin in it."""
    if name == "TopologyTestDriver":
        from millstream.testing.driver import TopologyTestDriver  # noqa: PLC0415 - see above

        return TopologyTestDriver
    if name in __all__:
        from millstream.testing import topics  # noqa: PLC0415 - see above

        return getattr(topics, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
