"""A model of the Redis server, limited to what the engine and its scripts use.

- ``server``: connections, scripts, client tracking, pub/sub; read this first
- ``commands``: the commands; ``keyspace``: values and their expiry
- ``lua``: the shipped scripts in a real Lua 5.1
"""
