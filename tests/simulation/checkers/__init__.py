"""The invariants I1–I13.

- ``engine_view``: what the lock keys of one server show; ``majority``: several servers as one
- ``holder_view``: what the holders and waiters see: exclusion, tokens, progress, losses
- ``orphans``: locks that no caller uses; ``register``: the resource that the locks protect
- ``history``: the trace of a run, and ``Violation``
"""
