"""The engine's port on the simulated network: what the drivers are for real servers.

- ``engine``: the shipped Redis session on ``channel``
- ``channel``: requests, time-outs and pushes; ``wire``: the connections below it
"""
