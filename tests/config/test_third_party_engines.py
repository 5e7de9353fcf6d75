"""Engines of other distributions: found by their entry points, made by their factories, reported when they fail.

``toy_engine`` is a distribution. It is installed into a directory by pip, without an index and without building in
isolation, so without the network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import UsageError
from holdfast._config.settings import resolve_default
from holdfast._config.targets import Target, parse_target
from holdfast.cli.main import main
from holdfast.cli.masking import masked_url
from holdfast.engines import registry

SOURCE = Path(__file__).parent / "toy_engine"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory into which the distribution is installed."""
    source, site = tmp_path_factory.mktemp("toy") / "source", tmp_path_factory.mktemp("site")
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-build-isolation", "--no-deps", "--no-cache-dir"]
    subprocess.run([*command, *offline, "--target", str(site), str(source)], check=True, timeout=120)
    return site


@pytest.fixture
def toy(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The distribution can be imported."""
    monkeypatch.setattr(registry, "_found", {})
    monkeypatch.syspath_prepend(installed)
    yield
    for name in [name for name in sys.modules if name.startswith("holdfast_toy")]:
        del sys.modules[name]


def add_distribution(site: Path, name: str, *lines: str) -> None:
    """Make ``site`` contain a distribution with these entry points."""
    folder = site / f"{name}-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("\n".join(["[holdfast.engines]", *lines]) + "\n")


def engine_of(client: holdfast.Client) -> Any:
    return client._engine


def test_installed_distribution_is_connected_by_its_scheme(installed: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(installed)!r})
import holdfast
with (
    holdfast.connect("toy:orders?shelf=lower&ttl=5") as locks,
    holdfast.connect("toy:orders", shelf="lower") as others,
    holdfast.connect("toy:orders") as elsewhere,
):
    print(repr(locks), locks.guarantees.fencing)
    with locks.lock("a") as lease:
        print(lease.held, others.lock("a").try_acquire(), elsewhere.lock("a").locked())
    print(others.lock("a").try_acquire().token > lease.token)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["<Client on <toy engine, shelf lower>> True", "True None False", "True"]


@pytest.mark.usefixtures("toy")
def test_factory_gets_the_url_without_query_and_all_options() -> None:
    target = parse_target("TOY://joe:s3cr3t@h1,h2/a%20b?shelf=lower&ttl=5m&namespace=n", {"replicas": 2})
    assert target.target == "toy://joe:s3cr3t@h1,h2/a%20b"
    assert (target.options.ttl, target.options.namespace, target.engine_options) == (300.0, "n", {"shelf": "lower"})
    assert "s3cr3t" not in repr(target)
    assert "joe" not in repr(target)
    engine: Any = registry.make_engine(target)
    assert (engine.url, engine.shelf) == (target.target, "lower")
    assert engine.client_options == {"replicas": 2, "token_ttl": 30 * 86400.0, "ttl": 300.0}


@pytest.mark.usefixtures("toy")
def test_factory_validates_its_own_options() -> None:
    connect: Any = holdfast.connect  # a type checker knows the options of the built-in engines only
    for url, keywords in (("toy:?sheld=upper", {}), ("toy:", {"shelf": "middle"})):
        with pytest.raises(UsageError, match="toy: has one option, shelf"):
            connect(url, **keywords)


@pytest.mark.usefixtures("toy")
def test_keyword_and_parameter_may_agree_and_may_not_differ() -> None:
    connect: Any = holdfast.connect
    assert engine_of(connect("toy:?shelf=lower", shelf="lower")).shelf == "lower"
    with pytest.raises(UsageError, match="shelf is given as a keyword and, differently"):
        connect("toy:?shelf=lower", shelf="upper")


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    "url", ["toy://joe:12?s3cr3t@h", "toy://joe:12?s3cr3t=1@h", "toy://joe:s3cr3t#@h", "toy://joe:12?x=1&s3cr3t/=2"]
)
def test_password_that_is_not_encoded_is_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        holdfast.connect(url)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.usefixtures("toy")
def test_settings_file_gives_options_to_the_factory(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("url = 'toy:orders'\nshelf = 'lower'\nttl = '5s'\n")
    default = resolve_default({"HOLDFAST_CONFIG": str(file)})
    assert parse_target(default.url, default.keywords).engine_options == {"shelf": "lower"}
    file.write_text("url = 'toz:orders'\nshelf = 'lower'\n")
    with pytest.raises(UsageError, match="unknown key 'shelf'"):
        resolve_default({"HOLDFAST_CONFIG": str(file)})


@pytest.mark.usefixtures("toy")
def test_every_foreign_parameter_is_masked_where_urls_are_shown() -> None:
    assert masked_url("toy://joe:pw@h?shelf=lower&ttl=5") == "toy://joe:***@h?shelf=***&ttl=5"
    assert masked_url("toy:orders") == "toy:orders"


@pytest.mark.usefixtures("toy")
def test_built_in_schemes_and_engines_cannot_be_replaced() -> None:
    assert engine_of(holdfast.connect("redis://h")).scheme == "redis"
    with pytest.raises(UsageError, match="unknown URL scheme 'cluster'"):
        holdfast.connect("cluster://h")


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    "url, message",
    [
        ("toyy://h", "unknown URL scheme 'toyy'; did you mean 'toy'?"),
        ("rediis://h", "did you mean 'redis'? Installed engines of other distributions: toy, "),
        ("http://h", "memory, toy, toy-broken"),
    ],
)
def test_unknown_scheme_error_names_installed_engines(url: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        holdfast.connect(url)
    assert message in str(caught.value)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    "scheme, message",
    [
        ("toy-broken", r"cannot be loaded from holdfast-toy \(holdfast_toy_missing:connect\): ModuleNotFoundError"),
        ("toy-constant", r"is not callable: holdfast-toy \(holdfast_toy:SHELVES\) must name its factory"),
    ],
)
def test_entry_point_that_fails_is_reported_with_its_distribution(scheme: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        holdfast.connect(f"{scheme}:x")


@pytest.mark.usefixtures("toy")
def test_two_distributions_with_one_scheme_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_distribution(tmp_path, "another_toy", "toy = another_toy:connect")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"several .* provide toy://: another_toy \(.*\), holdfast-toy \(.*\); uninst"):
        holdfast.connect("toy:")


def test_engine_that_disappears_between_parsing_and_making_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_found", {})
    with pytest.raises(UsageError, match="no installed distribution provides an engine for toy://"):
        registry.make_engine(Target("toy", "toy:", holdfast.connect("memory:")._options, {}))


@pytest.mark.usefixtures("toy")
def test_planned_scheme_can_be_provided_by_a_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = min(registry.PLANNED)
    add_distribution(tmp_path, "planned_engine", f"{scheme} = holdfast_toy:connect")
    monkeypatch.syspath_prepend(tmp_path)
    assert engine_of(holdfast.connect(f"{scheme}:x")).scheme == "toy"


def test_built_in_scheme_looks_up_no_entry_points() -> None:
    code = (
        "import holdfast, sys\n"
        "with holdfast.connect('memory:') as c, c.lock('a'): pass\n"
        "assert 'importlib.metadata' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.usefixtures("toy")
def test_doctor_refuses_an_engine_without_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "toy:orders"]) == 78
    assert "no checks for toy://" in capsys.readouterr().err


@pytest.mark.usefixtures("toy")
def test_config_command_masks_every_option_of_a_foreign_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--url", "toy:orders?shelf=lower"]) == 0
    printed = capsys.readouterr().out
    assert "engine: toy" in printed
    assert "lower" not in printed
