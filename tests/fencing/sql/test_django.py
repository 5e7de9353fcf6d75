"""SqlFence on Django's connections, and the application ``holdfast.contrib.django``, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

_PRELUDE = """
import sys
from tests.fencing.sql.django_site import configure
configure(sys.argv[1])
from django.core.management import call_command
from django.db import connection, transaction
import holdfast
from holdfast.fencing import SqlFence
fence = SqlFence()
def tables(): return connection.introspection.table_names()
def stored():
    from holdfast.contrib.django.models import FenceRow
    return list(FenceRow.objects.order_by("resource").values_list("resource", "token", "owner"))
def refused(error, call):
    try: call()
    except error as raised: return raised
    raise AssertionError(f"{error.__name__} was not raised")
def check(token, owner=None):
    fence.check(using="default", resource="orders", token=token, owner=owner)
def check_atomically(token, owner=None):
    with transaction.atomic(): check(token, owner)
"""


@pytest.fixture(params=[pytest.param("postgresql", marks=pytest.mark.needs_postgres), "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "site.db")
    location: str = request.getfixturevalue("postgres_server").location
    return location


def run_site(place: str, source: str) -> None:
    """Runs ``source``, including its assertions, on a site with that database."""
    command = [sys.executable, "-W", "error", "-c", _PRELUDE + source, place]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_migration_creates_and_removes_the_table(place: str) -> None:
    run_site(
        place,
        """
error = refused(holdfast.EngineRefused, lambda: check_atomically(1))
assert "migration" in str(error) and error.__cause__ is not None
call_command("migrate", verbosity=0)
assert "holdfast_fence" in tables() and stored() == []
call_command("makemigrations", "--check", "--dry-run", verbosity=0)  # SystemExit if a model differs
check_atomically(1)
call_command("migrate", "holdfast", "zero", verbosity=0)
assert "holdfast_fence" not in tables()
fence.create(using="default")
call_command("migrate", verbosity=0)  # a table that is there already is kept
check_atomically(1)
""",
    )


def test_check_needs_an_atomic_block_and_is_rolled_back_with_it(place: str) -> None:
    run_site(
        place,
        """
call_command("migrate", verbosity=0)
error = refused(holdfast.UsageError, lambda: check(1))
assert "'default'" in str(error) and "transaction.atomic()" in str(error)
assert stored() == []
def fail():
    with transaction.atomic():
        check(1); raise ZeroDivisionError
refused(ZeroDivisionError, fail)
assert stored() == []
check_atomically(2**63 - 1, "100 %s %(token)s")
check_atomically(2**63 - 1, "100 %s %(token)s")
error = refused(holdfast.StaleToken, lambda: check_atomically(2**63 - 2))
assert (error.token, error.seen) == (2**63 - 2, 2**63 - 1)
refused(holdfast.StaleToken, lambda: check_atomically(2**63 - 1, "another"))
assert stored() == [("orders", 2**63 - 1, "100 %s %(token)s")]
with transaction.atomic():
    fence.check(connection, "by connection", 1)
    with transaction.atomic():  # a savepoint
        fence.check(connection, "by connection", 2)
assert [row[:2] for row in stored()] == [("by connection", 2), ("orders", 2**63 - 1)]
""",
    )


def test_unsupported_database_is_refused_by_name_and_gets_no_table(tmp_path: Path) -> None:
    run_site(
        str(tmp_path / "site.db"),
        """
error = refused(holdfast.UsageError, lambda: fence.check(using="other", resource="orders", token=1))
assert "postgresql and sqlite, not 'unknown'" in str(error)
from importlib import import_module
from django.db import connections
class Editor:
    connection = connections["other"]
    def execute(self, statement): raise AssertionError(statement)
import_module("holdfast.contrib.django.migrations.0001_initial").create(None, Editor())
""",
    )
