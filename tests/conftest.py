"""For all tests: those that need Spark share one worker, so that one Spark is started and not two."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Like `--dist loadgroup`, by folder."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # noqa: PLC0415

    class OneSpark(LoadScopeScheduling):  # type: ignore[misc]
        """Every test by itself, but the Spark tests together."""

        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid

    return OneSpark(config, log)
