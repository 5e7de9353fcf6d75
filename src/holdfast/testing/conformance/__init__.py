"""The conformance suite: what every lock engine must do, in sync and async. Needs pytest and nothing else.

For an engine that ``holdfast.connect`` knows::

    import pytest
    from holdfast.testing.conformance import ConformanceSuite

    class TestMyServer(ConformanceSuite):
        @pytest.fixture
        def url(self, my_server):          # your own fixture
            return my_server.url

For an engine of your own, name a function that creates it; helper processes import it too::

    class TestMyEngine(ConformanceSuite):
        engine = "mypackage.engine:make_engine"     # make_engine(url) -> holdfast.engines.base.Engine

        @pytest.fixture
        def url(self, tmp_path):
            return f"myengine:{tmp_path}"

Each case is written once and runs in sync and async (``test_…[sync]``, ``test_…[async]``); in sync its actors are
threads, in async they are tasks. Cases that need what the engine does not promise in its ``guarantees``
(``cross_process``, ``fair``) are skipped with the reason ``<scheme> does not give <promise>``: list the skips that you
expect, and fail on any other. Lock names are new in every case, so cases may share a server and run in parallel.

To run a part of the suite: ``class TestSome(Fixtures, ExclusionCases, …)`` with the classes of ``conformance.cases``.

The suite shows what a correct engine does without faults, and when clients misbehave. It does not test faults of the
network or the server, nor long-term behaviour: it is necessary, not sufficient.

Read ``suite.py`` first.

* ``suite.py``: ConformanceSuite and its fixtures; ``cases/``: the cases, by topic
* ``writing.py``: ``case`` and ``needs``, for writing cases
* ``world.py``: the clients, actors and names of one case; ``actors.py``: threads and tasks behind one interface
* ``opening.py``: opens clients
* ``processes.py``: helper processes, seen from the test; ``child.py``: their program; ``scenarios.py``: forks and
  signals, each in a process of its own
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.testing.conformance.opening import Api, Source
    from holdfast.testing.conformance.suite import ConformanceSuite, Fixtures
    from holdfast.testing.conformance.world import World
    from holdfast.testing.conformance.writing import case, needs

__all__ = ["Api", "ConformanceSuite", "Fixtures", "Source", "World", "case", "needs"]

# No module may have one of these names: once imported, the module would hide the attribute.
_HOMES: Final = {
    "Api": "opening",
    "ConformanceSuite": "suite",
    "Fixtures": "suite",
    "Source": "opening",
    "World": "world",
    "case": "writing",
    "needs": "writing",
}


def __getattr__(name: str) -> Any:
    # Lazy: helper processes use the worlds and actors of this package, and must not import pytest.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
