"""Read-write locks and semaphores on Redis.

* ``redisson.py``: what Java does on the same keys
"""
