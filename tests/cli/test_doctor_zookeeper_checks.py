"""The checks of the doctor on facts about a ZooKeeper ensemble. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast._config.options import ClientOptions
from holdfast.cli.doctor.finding import Level
from holdfast.cli.doctor.zookeeper.checks import judge
from holdfast.cli.doctor.zookeeper.facts import Ensemble, Server

WELL = Server(
    "z1:2181",
    said={"Zookeeper version": "3.9.2-abc, built on some day", "Mode": "follower"},
    settings={"tickTime": "2000", "minSessionTimeout": "4000", "maxSessionTimeout": "40000"},
    session=30.0,
    answer_seconds=0.001,
)
ALL_WELL = Ensemble(ClientOptions(), 2.0, "/locks", False, (WELL,) * 3, voters=3, tried=True)


def complaints(facts: Ensemble) -> dict[str, str]:
    return {finding.check: finding.level.word for finding in judge(facts) if finding.level is not Level.OK}


def test_healthy_ensemble_has_no_complaint() -> None:
    assert complaints(ALL_WELL) == {}


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"said": {"Zookeeper version": "3.4.14-x", "Mode": "follower"}}, {"version": "problem"}),
        ({"said": {"Zookeeper version": "3.5.0-alpha"}}, {"version": "problem"}),
        ({"failure": "it hung up", "said": {"Mode": "read-only"}}, {"serving": "problem"}),
        ({"failure": "it hung up"}, {"reachable": "problem"}),
        ({"answer_seconds": 0.3}, {"answers": "warning"}),
        ({"withheld": {"conf": "no"}, "settings": {}}, {"withheld": "notice"}),
    ],
)
def test_unhealthy_ensemble_is_reported(change: dict[str, Any], expected: dict[str, str]) -> None:
    ill = replace(WELL, **change)
    assert complaints(replace(ALL_WELL, servers=(WELL, WELL, ill))) == expected


@pytest.mark.parametrize("voters, level", [(2, "warning"), (4, "warning"), (5, None), (0, None)])
def test_number_of_voters_sets_the_level(voters: int, level: str | None) -> None:
    named = (WELL,) * max(voters, 1)
    assert complaints(replace(ALL_WELL, servers=named, voters=voters)).get("ensemble") == level
