"""Read-write locks and semaphores in a world with one server.

- ``world``: its names, policies and faults; ``users``: their calls
- ``rwlock_view``, ``permits_view``: the server's side of the invariants, ``view`` what they share
- ``holders``: the holders' side: readers or one writer, no more permits than there are, and no waiter starves
- ``mutants``: deliberate bugs
"""
