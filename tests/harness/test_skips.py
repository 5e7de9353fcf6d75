"""No test is skipped silently: the rule of tests/conftest.py, checked in a separate run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs import ROOT, run_pytest

NEEDS_REDIS = "tests/harness/test_redis_server.py::test_server_listens_on_a_unix_socket"


def test_without_redis_a_test_is_skipped_by_name() -> None:
    done = run_pytest(NEEDS_REDIS)
    assert done.returncode == 0, done.stdout
    assert "SKIPPED (1)" in done.stdout
    assert f"{NEEDS_REDIS}: redis-server is not on PATH" in done.stdout


def test_without_redis_a_test_fails_in_ci() -> None:
    done = run_pytest(NEEDS_REDIS, CI="true")
    assert done.returncode == 1
    assert "1 failed" in done.stdout or "1 error" in done.stdout
    assert "with CI=true that is a failure" in done.stdout


@pytest.mark.parametrize(
    "body",
    [
        "import pytest\ndef test_x(): pytest.skip('not today')",
        "import pytest\n@pytest.mark.skip(reason='not today')\ndef test_x(): ...",
        "import pytest\npytest.skip('not today', allow_module_level=True)",
    ],
)
def test_a_skip_that_is_not_listed_fails_the_run(tmp_path: Path, body: str) -> None:
    (tmp_path / "test_lazy.py").write_text(f"{body}\n", "utf-8")
    (tmp_path / "test_good.py").write_text("def test_y(): assert True\n", "utf-8")
    # From outside the tree, so the rule must be loaded by name.
    done = run_pytest("-p", "tests.conftest", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), str(tmp_path))
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "NOT LISTED IN tests/skips.toml" in done.stdout
    assert "not today" in done.stdout
    assert done.returncode == 1
