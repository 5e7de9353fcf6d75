"""A bounded buffer, kept by the shipped monitors and conditions, in a world with one server.

- ``world``: its processes and faults; ``users``: producers and consumers
- ``directed``: one item, and a waiter that ends at the moment of its notify
- ``buffer_view``: the server's side: what each store does to the buffer
- ``sleepers``: the waiters' side: no waiter sleeps beside what it waits for
- ``mutants``: deliberate bugs
"""
