"""An application on the local engine in a process of its own: `python -m tests.engine.local_child FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.lab import Lab
from tests.spark.programs import one_level

if __name__ == "__main__":
    lab = Lab(Path(sys.argv[1]), None)
    lab.engine = "local"
    with lab.app(one_level(), max_records_per_epoch=20) as app:
        app.run()
