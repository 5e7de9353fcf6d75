"""The engine's port on the simulated network, in place of the drivers for real servers.

- ``engine``: the shipped Redis session on ``channel``
- ``channel``: requests, timeouts and pushes; ``wire``: the connections below it
"""
