"""Drop-in replacements for the locks of other libraries: their interface, with holdfast's leases inside.

* :mod:`holdfast.compat.redis_py`: redis-py's ``Lock``, sync and asyncio.
"""
