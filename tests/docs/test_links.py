"""Links between documents lead to existing targets."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.markdown import ROOT, anchors, documents, links, shown


@pytest.mark.parametrize("path", documents(), ids=shown)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for line, target in links(path):
        if target.startswith("https://"):
            continue
        place, _, fragment = unquote(target).partition("#")
        file = (path.parent / place).resolve() if place else path
        assert file.exists(), f"line {line}: {target} is not there"
        assert file.is_relative_to(ROOT), f"line {line}: {target} leads out of the repository"
        if fragment:
            assert fragment in anchors(file), f"line {line}: no heading for {target}"


def test_every_document_is_reachable_from_the_readme() -> None:
    reached: set[Path] = set()
    to_visit = [ROOT / "README.md"]
    while to_visit:
        path = to_visit.pop()
        if path not in reached:
            reached.add(path)
            places = [unquote(target).partition("#")[0] for _, target in links(path) if "://" not in target]
            to_visit += [file for place in places if (file := (path.parent / place).resolve()).suffix == ".md"]
    assert {shown(path) for path in documents()} <= {shown(path) for path in reached}
