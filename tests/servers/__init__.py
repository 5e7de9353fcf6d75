"""Servers and networks for tests. No tests are here; ``tests/conftest.py`` has the fixtures.

Read ``process.py`` first: how every server program is started, frozen, restarted and ended.

- ``redis``, ``zookeeper``, ``postgres``, ``moto``: one real server each
- ``replication``, ``sentinel``, ``cluster``, ``masters``: topologies of Redis; ``ensemble``: three ZooKeepers;
  ``group``: their common base
- ``relay``: a link that can be cut; ``distance``: a link with a delay; ``zookeeper_proxy``, ``zookeeper_wire``: faults
  at single requests (for Redis: ``holdfast.testing.proxy``)
- ``silent_session``: a ZooKeeper session without pings; ``clock``: moves a server's wall clock, by ``clock_shim.c``
- ``ports``: reserved ports; ``loop_thread``: an event loop for relays and proxies
"""
