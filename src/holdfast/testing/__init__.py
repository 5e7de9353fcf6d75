"""Helpers for tests of engines and of programs that use locks. Nothing else in ``holdfast`` imports this package.

* ``conformance/``: the test suite for engines
* ``proxy.py``: a fault proxy for Redis. Read it first; ``faults.py`` has the faults, ``link.py`` one connection through
  the proxy, ``resp.py`` the wire format
"""
