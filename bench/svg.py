"""What bars and curves have in common: a plain SVG that follows the reader's light or dark color scheme."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from bench.harness import OURS

WIDTH: Final = 860
_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px } .dim { fill: #6e7781; font-size: 12px }
  .ours { fill: #0969da } .other { fill: #afb8c1 } .floor { fill: #d8dee4 } line { stroke: #57606a }
  .grid { stroke: #d8dee4 } polyline { fill: none; stroke-width: 2 }
  polyline.ours { stroke: #0969da; stroke-width: 3; fill: none }
  polyline.floor { stroke: #8c959f; stroke-dasharray: 4 3; fill: none }
  .p0 { stroke: #bf8700 } .p1 { stroke: #1a7f37 } .p2 { stroke: #8250df }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #8b949e } .ours { fill: #58a6ff } .other { fill: #6e7681 }
    .floor { fill: #484f58 } line { stroke: #c9d1d9 } .grid { stroke: #30363d } polyline.ours { stroke: #58a6ff }
    polyline.floor { fill: none }
  }
"""


def document(body: Iterable[str], height: float, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">\n<style>{_STYLE}</style>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(content)}</text>'


def kind_of(candidate: str) -> str:
    """The class of a candidate: ours, other or floor."""
    if OURS in candidate:
        return "ours"
    return "floor" if candidate.startswith("floor") else "other"
