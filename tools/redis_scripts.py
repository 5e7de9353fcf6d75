"""The contract of each Lua script as a page of the reference: what the comment at its beginning says.

``python -m tools.redis_scripts >docs/reference/redis-scripts.md``. A test compares both, so that implementers in other
languages read what the scripts are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import resources
from typing import Final

_INTRODUCTION: Final = """\
# Scripts of the Redis engine

What each script is given, answers and does, from the comments in `src/holdfast/engines/redis/scripts`; what the keys
hold is in the [wire format](redis-wire-format.md). An implementation in another language may send others with the
same effect on the keys. "Idempotent" is what makes it safe to repeat a request whose reply was lost.
"""


def scripts() -> Iterator[tuple[str, str]]:
    """Names and comments of the scripts, without those that only define functions for others."""
    folder = resources.files("holdfast.engines.redis.scripts")
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".lua"):
            comment = re.match(r"(?:--.*\n)+", file.read_text("utf-8"))
            assert comment is not None, file.name
            lines = [line.removeprefix("--").removeprefix(" ") for line in comment[0].splitlines()]
            if any(line.startswith("KEYS ") for line in lines):
                yield file.name.removesuffix(".lua"), "\n".join(lines)


def section(name: str, comment: str) -> str:
    """One script in Markdown: the contract as it is, the text around it as text."""
    first, contract, *rest = comment.split("\n\n")
    return "\n\n".join([f"## `{name}`", _text(first), f"```text\n{contract}\n```", *map(_text, rest)]) + "\n"


def _text(lines: str) -> str:
    """Keys have braces and stars: no markup."""
    return re.sub(r"([*_<>|])", r"\\\1", lines)


def page() -> str:
    return "\n".join([_INTRODUCTION, *(section(name, comment) for name, comment in scripts())])


if __name__ == "__main__":
    sys.stdout.write(page())
