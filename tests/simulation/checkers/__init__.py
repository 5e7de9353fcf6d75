"""The invariants I1–I13.

- ``engine_view``: what the lock keys of one server show; ``majority``: several servers as one
- ``holder_view``: what the holders and waiters see: exclusion, tokens, progress, losses
- ``orphans``: locks that no caller wants; ``register``: the resource behind the locks
- ``history``: the trace of a run, and ``Violation``
"""
