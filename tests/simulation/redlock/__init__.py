"""Redlock in the simulation: the shipped session on several servers, each with faults and a clock of its own.

- ``world``: the world with three or five servers; ``grants``: tokens in great numbers, without the core
- ``engine``, ``server_group``: the shipped session, and requests to several servers in parallel
- ``mutants``: faults built in on purpose
"""
