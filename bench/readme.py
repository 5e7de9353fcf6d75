"""The section of the README that shows the figures: written by a run, between two comments."""

from __future__ import annotations

from typing import Final

from bench.outcome import Outcome
from bench.report import promises, table

_BEGIN: Final = "<!-- figures: written by `python -m bench --write` -->\n"
_END: Final = "<!-- end of figures -->\n"


def section(outcomes: list[Outcome], warning: str = "") -> str:
    """``warning`` is about the noise, if any."""
    minutes = max(1, round(sum(outcome.seconds for outcome in outcomes) / 60))
    rows = [(one.what, one.measured) for one in promises(outcomes) if one.headline]
    lines = [
        "Measured beside the peers and the floor in one run, in turns; ratios are of medians, in brackets those within",
        "single rounds. [bench/RESULTS.md](bench/RESULTS.md) has the machine, the versions, the spread, the cost of",
        "each in CPU and commands, and our targets, met and missed.",
        f"`make bench` repeats it in about {minutes} minutes.",
        *([] if not warning else ["", f"**{warning}**"]),
        "",
        "![cost of one operation for 1 to 1,000 tasks, 1 to 32 processes, 1,000 to 50,000 leases](bench/curves.svg)",
        "",
        *table(["what", "measured"], rows),
        "",
        "[All of it as bars](bench/results.svg).",
    ]
    return "\n".join(lines) + "\n"


def replaced(readme: str, written: str) -> str:
    """The README with this text between the two comments. ValueError if it does not have them."""
    before, begin, rest = readme.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError("the README has no comments around its figures")
    return f"{before}{begin}\n{written}\n{end}{after}"
