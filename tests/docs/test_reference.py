"""The reference is complete and agrees with the code: names, options, reasons, prefixes, guarantees."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_args

import pytest

import holdfast
from holdfast import aio, errors, fencing, observer
from holdfast._config import parameters
from holdfast.engines import base, registry
from holdfast.engines.redis import options as redis_options
from holdfast.engines.redis.dialect import keys
from holdfast.engines.zookeeper import options as zookeeper_options
from holdfast.testing.proxy import FaultProxy
from tests.docs.markdown import ROOT, tables

REFERENCE: Final = ROOT / "docs" / "reference"
PUBLIC: Final = [(module, name) for module in (holdfast, aio, fencing, observer) for name in module.__all__]
CLASSES: Final = [
    holdfast.Client, holdfast.Lock, holdfast.Lease, holdfast.Guarantees, holdfast.Holder, holdfast.LockState,
    holdfast.Waiter, holdfast.RWLock, holdfast.Semaphore, holdfast.MultiLock, holdfast.MultiLease,
    holdfast.Latch, holdfast.Barrier, holdfast.Election,
    aio.AsyncClient, aio.AsyncLock, aio.AsyncLease, aio.AsyncRWLock, aio.AsyncSemaphore, aio.AsyncMultiLock,
    aio.AsyncMultiLease, aio.AsyncLatch, aio.AsyncBarrier, aio.AsyncElection,
    fencing.Fence, fencing.FileFence, fencing.MemoryFence, fencing.Guard, fencing.SqlFence,
    fencing.RedisFence, fencing.AsyncRedisFence, fencing.ObjectFence, fencing.AsyncObjectFence, fencing.InheritedLease,
    *(event for name in observer.__all__ if isinstance(event := getattr(observer, name), type)),
]  # fmt: skip
MEMBERS: Final = [
    pytest.param(kind, name, id=f"{kind.__name__}.{name}")
    for kind in CLASSES
    for name in dir(kind)
    if not name.startswith("_")
]


def _entries() -> dict[str, str]:
    """Returns the text about each name: the section whose heading, or the row whose first cell, names it."""
    found: dict[str, str] = {}
    for path in sorted(REFERENCE.glob("*.md")):
        text = path.read_text("utf-8")
        sections = re.findall(r"^#+ [^\n]*?`(?:holdfast\.)?([\w.]+)`\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
        rows = re.findall(r"^\| `(?:holdfast\.)?([\w.]+)` \|(.*)$", text, re.MULTILINE)
        found |= dict(rows) | dict(sections)
    return found


@pytest.mark.parametrize("module, name", PUBLIC, ids=[f"{module.__name__}.{name}" for module, name in PUBLIC])
def test_public_names_are_documented(module: ModuleType, name: str) -> None:
    entry = f"aio.{name}" if module is aio else name
    assert entry in _entries()
    value: Any = getattr(module, name)
    assert name == "__version__" or inspect.getdoc(value)


@pytest.mark.parametrize("kind, name", MEMBERS)
def test_public_members_are_documented(kind: type, name: str) -> None:
    entries = _entries()
    names = [f"aio.{base.__name__}" if base.__name__ in aio.__all__ else base.__name__ for base in kind.__mro__]
    documented = "".join(entries.get(base, "") for base in names)
    assert re.search(rf"`{re.escape(name)}(?:\([^`]*\))?`", documented)
    if not dataclasses.is_dataclass(kind):
        assert inspect.getdoc(getattr(kind, name))


def test_own_options_and_variables_are_documented() -> None:
    text = (REFERENCE / "urls.md").read_text("utf-8")
    for name in parameters.OWN:
        assert f"| `{name}` | `HOLDFAST_{name.upper()}` |" in text


@pytest.mark.parametrize(
    "group",
    [
        redis_options.URL_OPTIONS, redis_options.OBJECT_OPTIONS, redis_options.WITHOUT_EFFECT,
        zookeeper_options.URL_OPTIONS, zookeeper_options.OBJECT_OPTIONS, zookeeper_options.REFUSED_OPTIONS,
    ],
)  # fmt: skip
def test_driver_options_are_documented(group: Collection[str]) -> None:
    text = (REFERENCE / "urls.md").read_text("utf-8")
    missing = [name for name in group if f"`{name}`" not in text]
    assert not missing


def test_engine_options_are_documented() -> None:
    (table,) = [rows for rows in tables(REFERENCE / "urls.md") if rows[0][:2] == ["option", "for"]]
    documented = {row[1].strip("`").removeprefix("redis+"): set(re.findall(r"`(\w+)`", row[0])) for row in table[1:]}
    assert documented == redis_options.ENGINE_OPTIONS
    (values,) = [row[3] for row in table if "`sharded_pubsub`" in row[0]]
    assert all(f"`{mode}`" in values for mode in redis_options.SHARDED_PUBSUB)


def test_schemes_are_documented() -> None:
    text = (REFERENCE / "urls.md").read_text("utf-8")
    for scheme in registry.SCHEMES:
        assert f"| `{scheme}:" in text
    for scheme in registry.PLANNED:
        assert f"`{scheme}`" in text


def test_reasons_of_a_loss_are_documented() -> None:
    (table,) = [rows for rows in tables(ROOT / "docs/concepts/leases.md") if rows[0][0] == "`lost_reason`"]
    assert [row[0].strip("`") for row in table[1:]] == list(get_args(errors.LossReason))


def test_errors_are_in_the_tree_and_the_table() -> None:
    text = (REFERENCE / "errors.md").read_text("utf-8")
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.LockError)]
    assert len(kinds) > 10
    for kind in kinds:
        assert f"| `{kind.__name__}` |" in text
        assert re.search(rf"^[│├└─ ]*{kind.__name__}\b", text, re.MULTILINE)


def test_reserved_prefixes_of_redis_are_documented() -> None:
    text = (REFERENCE / "redis-wire-format.md").read_text("utf-8")
    for prefix in keys._RESERVED:
        assert f"`{prefix}`" in text


def test_engine_port_description_matches_the_code() -> None:
    text = (ROOT / "docs" / "how-to" / "write-an-engine.md").read_text("utf-8")
    claims = text.partition("## Claims")[2].partition("| `Granted")[0]
    assert set(base.Claim._fields) <= set(re.findall(r"`(\w+)", claims))
    attempt = {name for name in vars(base.Attempt) if not name.startswith("_")} - {"claim"}
    assert set(re.findall(r"^\* `(\w+)`", claims, re.MULTILINE)) == attempt
    for protocol in (base.Session, base.Keeper):
        (table,) = [
            rows
            for rows in tables(ROOT / "docs" / "how-to" / "write-an-engine.md")
            if rows[0][0] == f"`{protocol.__name__}`"
        ]
        described = {name for row in table[1:] for name in re.findall(r"`(\w+)\(", row[0])}
        assert described == {name for name in vars(protocol) if not name.startswith("_")} - {"registers"}


def test_faults_of_the_proxy_are_documented() -> None:
    text = (REFERENCE / "testing.md").read_text("utf-8")
    occasion = FaultProxy("127.0.0.1", 1).on("GET")
    for name in dir(occasion):
        assert name.startswith("_") or f"| `{name}(" in text


def test_guarantee_table_of_the_readme_matches_the_engines(tmp_path: Path) -> None:
    (table,) = [rows for rows in tables(ROOT / "README.md") if "`memory:`" in rows[0]]
    targets = {
        "`memory:`": "memory:",
        "`sqlite:` (default)": f"sqlite://{tmp_path}/locks.db",
        "`redis:` (one server)": "redis://localhost:6379",
        "`redis+sentinel:`": "redis+sentinel://s1,s2,s3/mymaster",
        "`redis+cluster:`": "redis+cluster://c1,c2,c3",
        "`redlock:`": "redlock://r1,r2,r3",
        "`zookeeper:`": "zookeeper://z1,z2,z3/locks",
    }
    assert table[0][1:] == list(targets)
    for column, target in enumerate(targets.values(), 1):
        given = holdfast.connect(target).guarantees
        bools = {name: value for name, value in dataclasses.asdict(given).items() if isinstance(value, bool)}
        documented = {re.findall(r"`(\w+)`", row[0])[0]: row[column] == "yes" for row in table[1:]}
        assert {row[column] for row in table[1:]} <= {"yes", "no"}
        assert documented == bools
