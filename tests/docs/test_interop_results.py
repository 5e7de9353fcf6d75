"""The tables of what is interoperable with Java are those that the recorded results make."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.docs.markdown import ROOT, shown
from tests.interop import recording
from tests.interop.recording import BOTH, INTEROPERABLE, NEVER, TO_JAVA, TO_PYTHON, Result


def test_tables_in_the_documents_are_made_from_the_recorded_results() -> None:
    results = recording.load()
    documents = list(recording.documents())
    assert {peer for _, peer, _ in documents} >= {result.peer for result in results}
    for path, peer, present in documents:
        assert present == recording.table(results, peer), f"{shown(path)}: python -m tests.interop.recording writes it"


#: Collects the tests beside Java, which runs none of them, and prints what they would show.
COLLECT: Final = """
import json, pytest
from tests.interop.recording import declared
class Collector:
    def pytest_collection_finish(self, session):
        print("\\n" + json.dumps(sorted({result for item in session.items for result in declared(item)})))
arguments = ["--collect-only", "-qq", "-p", "no:cacheprovider", "tests/interop"]
raise SystemExit(pytest.main(arguments, plugins=[Collector()]))
"""


def test_what_is_recorded_is_what_tests_show() -> None:
    """A new case must be recorded, and a claim that no test shows any more must not stay."""
    command, environment = [sys.executable, "-c", COLLECT], {**os.environ, "INTEROP": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("[["))
    assert {Result(*row) for row in rows} == {*recording.load()}, "see tests/interop/recording.py"


def test_table_tells_versions_and_directions(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    rows = {
        Result("Peer", "Lock", "exclusion", INTEROPERABLE, TO_JAVA, "1.9"),
        Result("Peer", "Lock", "exclusion", INTEROPERABLE, TO_PYTHON, "1.10"),
        Result("Peer", "Lock", "waking", INTEROPERABLE, TO_JAVA, "1.10"),
        Result("Peer", "Lock", "tokens", NEVER, BOTH, "1.10"),
    }
    recording.store(path, list(rows)[:2])
    recording.store(path, list(rows)[2:])
    assert set(recording.load(path)) == rows, "results are added"
    assert recording.table(recording.load(path), "Peer").splitlines() == [
        "| Peer 1.9 and 1.10 | interoperable | safe, but unordered | must not be mixed |",
        "|---|---|---|---|",
        "| `Lock` | **exclusion**; waking (Python to Java) | – | tokens |",
        "",
        "**Bold**: shown with each version; else with 1.10.",
    ]
