"""What type checkers say about users' code: right calls pass, and each line marked ``# error`` fails.

``# error in mypy`` and ``# error in basedpyright`` mark lines that only one of them refuses.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

import holdfast

USER_CODE: Final = Path(__file__).parent / "user_code"
#: Where the package under test is: the virtual environment, or the source tree.
INSTALLED: Final = Path(holdfast.__path__[0]).parent
CHECKERS: Final = ("mypy", "basedpyright")

Places = set[tuple[str, int]]


def _marked(checker: str) -> Places:
    """File and line of each mark that is for this checker."""
    found = set()
    for path in USER_CODE.glob("*.py"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            mark = re.search(r"# error(?: in (\w+))?(?=:|$)", line)
            if mark is not None and mark[1] in (None, checker):
                found.add((path.name, number))
    return found


def _run(command: Iterable[str], extra: dict[str, str]) -> str:
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(
        [sys.executable, "-m", *command], env=environment | extra, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr  # errors were found, and the checker itself works
    return done.stdout


def _check_by_mypy(directory: Path) -> dict[tuple[str, int], str]:
    path = {} if "site-packages" in INSTALLED.parts else {"MYPYPATH": str(INSTALLED)}
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary", "--no-pretty"]
    printed = _run(["mypy", *options, "--cache-dir", str(directory), str(USER_CODE)], path)
    errors = re.findall(r"([^/\\\n]+\.py):(\d+): error: (.*)", printed)
    return {(name, int(number)): text for name, number, text in errors}


def _check_by_basedpyright(directory: Path) -> dict[tuple[str, int], str]:
    configuration = directory / "pyrightconfig.json"
    settings = {"include": [str(USER_CODE)], "typeCheckingMode": "strict", "extraPaths": [str(INSTALLED)]}
    configuration.write_text(json.dumps(settings), "utf-8")
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(configuration)]
    report = json.loads(_run(["basedpyright", *options], {}))
    return {
        (Path(found["file"]).name, found["range"]["start"]["line"] + 1): found["message"]
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    }


@pytest.mark.timeout(300)  # seconds of computing; on a busy machine minutes
@pytest.mark.parametrize("checker", CHECKERS)
def test_right_calls_are_accepted_and_wrong_calls_are_refused(checker: str, tmp_path: Path) -> None:
    check = _check_by_mypy if checker == "mypy" else _check_by_basedpyright
    found, marked = check(tmp_path), _marked(checker)
    refused = {place: text for place, text in found.items() if place not in marked}
    assert not refused, "refused, but right"
    assert not marked - found.keys(), "accepted, but wrong"
