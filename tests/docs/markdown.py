"""Parses documents into code blocks, headings and links, each with its line. Pure except for reading files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_HEADING: Final = re.compile(r"^#{1,6} +(?P<title>.*?) *#*$")
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CODE_SPAN: Final = re.compile(r"`[^`]*`")


def documents() -> list[Path]:
    """Every document for users."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def shown(path: Path) -> str:
    """The path relative to the repository."""
    return path.relative_to(ROOT).as_posix()


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. ``line`` is the number of its first line of code; ``marks`` are the words after the language."""

    path: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{shown(self.path)}:{self.line}"


def _lines(path: Path) -> Iterator[tuple[int, str, str | None]]:
    """Yields each line with its number and, inside a block and on its fences, the info string of the block."""
    info: str | None = None
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if fence is None:
            yield number, line, info
        elif info is None:
            info = fence["info"].strip()
            yield number, line, info
        else:
            yield number, line, info
            info = None
    assert info is None, f"{shown(path)}: the last code block is not closed"


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found: list[Block] = []
    lines: list[str] | None = None
    start = 0
    for number, line, info in _lines(path):
        if info is not None and _FENCE.match(line):
            if lines is None:
                lines, start = [], number + 1
            else:
                language, *marks = info.split() or [""]
                found.append(Block(path, start, language, tuple(marks), "\n".join(lines) + "\n"))
                lines = None
        elif lines is not None:
            lines.append(line)
    return found


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines outside of code blocks."""
    return ((number, line) for number, line, info in _lines(path) if info is None)


def links(path: Path) -> list[tuple[int, str]]:
    """Returns the target of each link of a document."""
    return [
        (number, link["target"])
        for number, line in prose(path)
        for link in _LINK.finditer(_CODE_SPAN.sub(lambda span: " " * len(span[0]), line))
    ]


def anchors(path: Path) -> set[str]:
    """Returns the fragments of the headings of a document, as the usual renderers make them."""
    found: set[str] = set()
    for _, line in prose(path):
        heading = _HEADING.match(line)
        if heading is not None:
            kept = re.sub(r"[^\w\- ]", "", heading["title"].replace("`", "").lower())
            anchor = base = kept.replace(" ", "-")
            repeat = 0
            while anchor in found:
                repeat += 1
                anchor = f"{base}-{repeat}"
            found.add(anchor)
    return found


def tables(path: Path) -> Iterator[list[list[str]]]:
    """Yields the tables of a document as rows of cells, without the line below the head."""
    rows: list[list[str]] = []
    for _, line in [*prose(path), (0, "")]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not all(set(cell) <= set(":-") for cell in cells):
                rows.append(cells)
        elif rows:
            yield rows
            rows = []
