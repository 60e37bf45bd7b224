"""Draws the nine stages of a cluster's life from the tables that a run of them has written.

    python -m tests.spark.cluster_world FOLDER
    python docs/pictures/nine_stages.py FOLDER/stages.json

keeps the tables in nine_stages.json beside this file, and draws nine_stages.svg of them.
"""

from __future__ import annotations

import json
import shutil
import sys
from html import escape
from pathlib import Path
from typing import Any

from svg import picture

HERE = Path(__file__).parent
HOST, TASK, STAGE, LEFT, TOP = 150, 30, 62, 16, 30
STYLE = """
.title { font-weight: bold }
.host { fill: none; stroke: #d0d7de }
.active { fill: #0969da } .active + text { fill: #ffffff }
.standby { fill: none; stroke: #0969da; stroke-width: 1.5 }
.warm-up { fill: none; stroke: #bf8700; stroke-width: 1.5; stroke-dasharray: 3 2 }
"""


def drawn(stages: list[tuple[int, str, list[dict[str, Any]]]]) -> str:
    """All stages, one below the other: a column for each instance, a box for each task on it."""
    hosts = sorted({one["host"] for _, _, tasks in stages for one in tasks})
    parts: list[str] = []
    for at, (number, title, tasks) in enumerate(stages):
        y = TOP + at * (STAGE + 40)
        parts.append(f'<text class="title" x="{LEFT}" y="{y - 8}">({number}) {escape(title)}</text>')
        for column, host in enumerate(hosts):
            x = LEFT + column * (HOST + 12)
            mine = sorted((one for one in tasks if one["host"] == host), key=lambda one: one["task"])
            if not mine:
                continue
            parts.append(f'<rect class="host" x="{x}" y="{y}" width="{HOST}" height="{STAGE}" rx="4"/>')
            parts.append(f'<text class="small" x="{x + 6}" y="{y + 14}">{escape(host)}</text>')
            for place, one in enumerate(mine):
                left = x + 6 + place * (TASK + 5)
                parts.append(
                    f'<rect class="{one["role"]}" x="{left}" y="{y + 22}" width="{TASK}" height="20" rx="3"/>'
                    f'<text class="label" x="{left + 6}" y="{y + 36}">{one["task"]}</text>'
                )
                behind = f"-{one['lag']}" if one["lag"] else f"v{one['version']}"
                parts.append(f'<text class="small" x="{left + 4}" y="{y + 56}">{behind}</text>')
    width = LEFT * 2 + len(hosts) * (HOST + 12)
    return picture("The nine stages", width, TOP + len(stages) * (STAGE + 40), parts, STYLE)


def main() -> None:
    """Draw, from new tables if there are any."""
    tables = HERE / "nine_stages.json"
    if len(sys.argv) > 1:
        shutil.copyfile(sys.argv[1], tables)
    stages = json.loads(tables.read_text(encoding="utf-8"))
    (HERE / "nine_stages.svg").write_text(drawn(stages), encoding="utf-8")


if __name__ == "__main__":
    main()
