"""Deterministic simulation: the shipped core and Redis engines in a world where everything goes wrong, by seed.

What runs is the real code down to the channel, and the shipped Lua files in a real Lua. Simulated are time, the
scheduler, the network and the servers: one, or several for Redlock. ``python -m tests.simulation`` runs
seeds; one that fails prints its trace and can be replayed exactly. Needs ``lupa``.
"""
