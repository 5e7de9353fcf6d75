"""The page of the documents, made from one run.

``holdfast ladder --json | python -m holdfast.cli.ladder.page docs/concepts/ladder.md`` writes the page, and its picture
beside it (``ladder.svg``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.cli.ladder import drawing, explain, matrix
from holdfast.cli.ladder.report import decode
from holdfast.cli.ladder.verdicts import FAULTS, RUNGS, Cell, Rung, as_promised, fault_named

_HEAD: Final = """\
# The ladder

*Made by `holdfast ladder`; see the end of this page. Every number and every timeline is from a run on real servers.*

Most locks climb this ladder: each rung fixes what broke the one below, and breaks at the next fault. `holdfast ladder`
runs all of them, on servers that it starts itself, and places the fault exactly: a process is killed or stopped right
before a named line of its code, or a server's answer is held back. No step depends on timing alone.

```console
$ holdfast ladder
$ holdfast ladder --rung 4 --explain
```

Several clients add one to the same number, under the lock: read, add, write. An update is lost when its write
succeeded, as far as its client can see, and the number does not contain it.
"""
_BELOW: Final = """\
*lost k/n*: k of n updates are lost. *\\**: a release deleted the lock of another client. *stuck*: locked for ever.
*–*: does not apply; the rung makes no check that it could be late for.

SETNX alone survives a freeze: a lock without a lease is safe and, after one crash, useless. Every lease and every
session can end while its holder is frozen; then only a check at the resource stops the late write.
"""
_END: Final = """\
## How this page is made

```console
$ holdfast ladder --json | python -m holdfast.cli.ladder.page docs/concepts/ladder.md
```

The locks are short programs of their own with redis-py and kazoo, and only the last one uses holdfast:
[how to read and change them](../../examples/ladder/README.md). What holdfast itself does about each of these faults is
in [leases](leases.md), [failover](failover.md), [Redlock](redlock.md), [ZooKeeper](zookeeper.md) and, for the last
rung, [fencing](fencing.md).
"""


def page(cells: Sequence[Cell], drawing_name: str) -> str:
    parts = [_HEAD, f"![{drawing.ALTERNATIVE}]({drawing_name})\n", _table(cells), _BELOW, _faults()]
    parts += [_rung(rung, cells) for rung in RUNGS]
    return "\n".join([*parts, _END])


def _table(cells: Sequence[Cell]) -> str:
    names = [" ".join(fault.heading).replace("- ", "").strip() for fault in FAULTS]
    lines = [f"| rung | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for row in matrix.in_rungs(cells):
        texts = (cell.text.replace("*", "\\*") for cell in row)
        lines.append(f"| {matrix.label(row[0].rung)} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def _faults() -> str:
    lines = ["## The faults\n", "| fault | what happens |", "|---|---|"]
    lines += [f"| `{fault.name}` | {fault.what} |" for fault in FAULTS]
    return "\n".join(lines) + "\n"


def _rung(rung: Rung, cells: Sequence[Cell]) -> str:
    fault = fault_named(rung.breaks_at or "freeze")
    cell = next(cell for cell in cells if cell.rung is rung and cell.fault is fault)
    source = f"../../src/holdfast/cli/ladder/rungs/{rung.module}.py"
    parts = [
        f"## Rung {rung.number}: {rung.title}\n",
        f"{explain.purpose(rung)} ([source]({source}))\n",
        f"{rung.problem}\n",
        f"A run with `{fault.name}`: **{cell.outcomes[0].text.replace('*', '')}**.\n",
        f"```text\n{explain.timeline(cell.outcomes[0].timeline)}\n```\n",
    ]
    following = explain.next_rung(rung)
    if following is not None:
        parts += [
            f"What rung {following.number} changes:\n",
            f"```text\n{explain.changes(rung)}\n```\n",
        ]
    return "\n".join(parts)


def main(file: str) -> None:
    cells = decode(sys.stdin.read())
    if len(cells) != len(RUNGS) * len(FAULTS) or any(cell.missing for cell in cells) or not as_promised(cells):
        raise SystemExit("the page needs a run of all cells, without a missing server, and all of it as promised")
    path = Path(file)
    beside = path.with_suffix(".svg")
    beside.write_text(drawing.svg(cells), "utf-8")
    path.write_text(page(cells, beside.name), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
