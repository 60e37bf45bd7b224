"""What the pictures have in common: colours, by day and by night, and the frame."""

from __future__ import annotations

STYLE = """
text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #24292f }
.small { font-size: 10px; fill: #57606a }
.window { fill: #ddf4ff; stroke: #0969da }
.axis { stroke: #57606a }
.record { fill: #0969da }
.late { fill: none; stroke: #cf222e; stroke-width: 1.5 }
.why { fill: #cf222e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .window { fill: #0c2d6b; stroke: #4493f8 }
  .axis { stroke: #9198a1 } .record { fill: #4493f8 } .late { stroke: #f85149 } .why { fill: #f85149 }
}
"""


def picture(title: str, width: int, height: int, parts: list[str], style: str = "") -> str:
    """A whole SVG file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'role="img">'
        f"<title>{title}</title><style>{STYLE}{style}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )
