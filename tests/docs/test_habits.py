"""What is done on each change is the same everywhere: Makefile, .ci/run, workflows, hooks, pyproject and README."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.docs.markdown import ROOT, shown

MAKEFILE: Final = (ROOT / "Makefile").read_text("utf-8")
TARGETS: Final = frozenset(re.findall(r"^([a-z][a-z-]*)(?:[a-z -]*):(?!=)", MAKEFILE, re.MULTILINE))
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES: Final = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
#: The extras in '.[redis]', dist/….whl)[redis] and holdfast-locks[redis].
EXTRAS: Final = re.compile(r"(?:['\s]\.|\.whl\)?|holdfast-locks)\[([a-z,]+)\]")
SUPPORTED: Final = ["3.11", "3.12", "3.13", "3.14"]


def loaded(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def verbs(script: str) -> list[str]:
    """The targets that a shell script gives to make."""
    calls = re.findall(r"^\s*make((?: +[a-z-]+)+) *$", script, re.MULTILINE)
    return [target for call in calls for target in call.split()]


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in loaded(path)["jobs"].values() for step in job["steps"]]


def commands(path: Path) -> str:
    return "\n".join(step["run"] for step in steps(path) if "run" in step)


CI_VERBS: Final = verbs((ROOT / ".ci" / "run").read_text("utf-8"))


def test_the_makefile_has_the_verbs_of_ci() -> None:
    assert CI_VERBS == ["lint", "types", "test", "harness", "coverage", "bench-check", "interop"]
    assert set(CI_VERBS) <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=shown)
def test_workflows_call_targets_that_exist_and_nothing_else_for_checks(path: Path) -> None:
    called = verbs(commands(path))
    assert called
    assert set(called) <= TARGETS
    assert not re.findall(r"\b(pytest|ruff|mypy|basedpyright|codespell|pip)\b", commands(path))


@pytest.mark.parametrize("path", WORKFLOWS, ids=shown)
def test_workflows_need_no_secrets_and_write_nothing_by_default(path: Path) -> None:
    assert "secrets." not in path.read_text("utf-8")
    assert loaded(path)["permissions"] == {"contents": "read"}


def test_pushes_and_pull_requests_run_what_the_local_ci_runs_on_every_supported_python() -> None:
    path = ROOT / ".github" / "workflows" / "ci.yml"
    workflow = loaded(path)
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML reads the key "on" as true
    assert verbs(commands(path)) == CI_VERBS
    assert workflow["jobs"]["check"]["strategy"]["matrix"]["python"] == SUPPORTED


def test_the_package_declares_the_pythons_that_are_tested() -> None:
    declared = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.MULTILINE)
    assert declared == SUPPORTED
    assert PROJECT["project"]["requires-python"] == f">={SUPPORTED[0]}"


def test_hooks_are_verbs_of_the_makefile_and_so_have_its_versions() -> None:
    repositories = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    for hook in repositories[0]["hooks"]:
        assert verbs(hook["entry"]) == [hook["id"]]
        assert hook["id"] in CI_VERBS
        assert hook["language"] == "system"
        assert hook["pass_filenames"] is False


@pytest.mark.parametrize("path", TEMPLATES, ids=shown)
def test_issue_templates_are_forms(path: Path) -> None:
    template = loaded(path)
    assert {"name", "description", "body"} <= template.keys()
    assert {entry["type"] for entry in template["body"]} <= {"markdown", "textarea", "input", "dropdown"}


def test_urls_stand_in_one_place() -> None:
    """They are not confirmed yet: a document must not repeat them."""
    urls = PROJECT["project"]["urls"]
    assert {"Homepage", "Documentation", "Changelog", "Issues", "Source"} == urls.keys()
    assert all(url.startswith(urls["Homepage"]) for url in urls.values())
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.*")]:
        assert urls["Homepage"] not in path.read_text("utf-8"), shown(path)


def test_coverage_has_a_floor_of_lines_and_branches() -> None:
    coverage = PROJECT["tool"]["coverage"]
    assert coverage["run"]["branch"] is True
    assert coverage["report"]["fail_under"] >= 85


def test_documents_install_extras_that_exist() -> None:
    extras = PROJECT["project"]["optional-dependencies"].keys()
    assert EXTRAS.findall((ROOT / "README.md").read_text("utf-8"))
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]:
        for named in re.findall(
            r"(?:'|\s)(?:\.|\$\(ls dist/\*\.whl\)|holdfast-locks)\[([a-z,]+)\]", path.read_text("utf-8")
        ):
            assert set(named.split(",")) <= extras, shown(path)
