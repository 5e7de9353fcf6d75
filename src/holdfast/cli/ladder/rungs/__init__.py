"""The nine rungs. Each file is one complete lock, written as such locks are usually written, with the same interface.

``Lock(addresses, name, lease)``, ``acquire()``, ``release()``. Read them in order, or compare two neighbours: the
difference is what the next rung changes. Rung 9 has ``guard()`` too, the check at the resource.

A comment ``# <- name`` names a line. The program that runs the rung can stop a process right before it executes that
line (see ``ladder/lines.py``); the code of the rung does not depend on that:

``busy``     another client holds the lock; the next line waits
``taken``    the first command that takes the lock has run on the server
``checked``  the last check of the lock is done; next, the caller starts to work
``delete``   the next command gives the lock back
"""
