"""A change of the public API is a change of docs/reference/public-api.txt, and so is seen in review."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Final

import holdfast
from tools import public_api

SHIPPED: Final = Path(__file__).parents[2] / "docs" / "reference" / "public-api.txt"


def test_the_shipped_file_has_the_public_api() -> None:
    shipped = SHIPPED.read_text("utf-8").splitlines()
    difference = "\n".join(difflib.unified_diff(shipped, public_api.lines(), "shipped", "now", lineterm="", n=0))
    assert not difference, f"the public API has changed; if that is meant, write it anew with 'make api':\n{difference}"


def test_the_file_depends_on_no_machine() -> None:
    assert not re.findall(r"0x[0-9a-f]{6,}|/home/|/root/|environ\(", SHIPPED.read_text("utf-8"))


def test_every_public_name_is_in_the_file() -> None:
    text = SHIPPED.read_text("utf-8")
    for name in holdfast.__all__:
        assert re.search(rf"^holdfast\.{name}\b", text, re.MULTILINE), name
