"""Redlock in the simulation: the shipped session on several servers, each with its own faults and clock.

- ``world``: the world with three or five servers; ``grants``: many thousand tokens, without the core
- ``engine``, ``server_group``: the shipped session, and requests to several servers in parallel
- ``mutants``: deliberate bugs
"""
