"""One module for each question, with ``TITLE`` and ``ask(scale)``. Read ``uncontended.py`` first: it is typical."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final, Protocol, cast

from bench.harness import Answer, Scale

#: In the order in which they are asked.
NAMES: Final = (
    "uncontended", "tasks", "reentry", "overhead", "embedded", "embedded_processes", "processes", "threads", "parallel",
    "latency", "fairness", "leases", "family", "condition", "sleepers", "cluster", "redlock", "failover",
    "zookeeper", "zookeeper_contended", "zookeeper_parallel", "zookeeper_latency",
)  # fmt: skip


class Question(Protocol):
    """A module of this package."""

    TITLE: str

    def ask(self, scale: Scale) -> Answer: ...


def load(name: str) -> Question:
    return cast(Question, importlib.import_module(f"bench.questions.{name}"))


def titles() -> Mapping[str, str]:
    return {name: load(name).TITLE for name in NAMES}
