"""What tests of several engines and layers share. Helpers of one engine are in its folder, servers in tests/servers.

Read ``waiting`` first: no test sleeps to wait for something.

- ``waiting``: wait for an event with a deadline and a message (``eventually``, ``until``)
- ``leaks``: threads, descriptors and connections, and a baseline to return to (``Baseline``)
- ``signal_injector``: signals at every place of a call (``SignalInjector``), or after a time (``interrupting``)
- ``clients``: clients and callers for a test that is written once for sync and async (``open_clients``)
- ``calls``: calls on threads of their own (``Call``, ``Later``)
- ``overtaking``: callers of one client that overtake each other, at chosen moments
- ``child``: a second process with a client, which can be frozen and killed (``Child``)
- ``forking``: work in a forked child (``in_a_child``)
- ``processes``: what /proc shows of processes, and waiting for their end (``Death``)
- ``terminal``: a command in a pseudo-terminal (``terminal``)
- ``register_contract``: what registers do, on every engine that has them (``CASES``, ``check``)
- ``readers``: a lease of a read lock, as far as a fence knows it
- ``register``, ``history``: a resource behind a lock, and what several processes held and when
- ``certificates``: certificates for servers with TLS
- ``runs``: runs of pytest and of servers in processes of their own, for tests/harness
- ``soak``: cases that only ``make soak`` runs
- ``longest``: the modules that take longest, which are begun first
- ``skipping``: fails a run in which a test was skipped that tests/skips.toml does not list
- ``source_files``: the Python files of tests/ and what they import, for tests/harness/test_layout.py
"""
