"""The name for pip. The name "holdfast" on PyPI belongs to another project: recommending it installs foreign code."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from holdfast._version import DISTRIBUTION
from tests.docs.markdown import ROOT, shown

#: As a requirement: after "pip install", or with extras.
_OTHER_PROJECT: Final = re.compile(r"pip install +['\"]?holdfast(?!-locks)|\bholdfast\[")


def test_distribution_is_named_consistently() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == DISTRIBUTION == "holdfast-locks"
    assert list(project["scripts"]) == ["holdfast"]
    (everything,) = project["optional-dependencies"]["all"]
    assert everything.startswith(f"{DISTRIBUTION}[")


def test_no_document_recommends_the_distribution_of_another_project() -> None:
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*"), *ROOT.glob("src/**/*.py")]
    found = [
        f"{shown(file)}: {line.strip()}"
        for file in files
        if file.is_file()
        for line in file.read_text("utf-8").splitlines()
        if _OTHER_PROJECT.search(line)
    ]
    assert found == []
