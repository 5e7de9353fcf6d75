"""ObjectFence: objects in S3, GCS or Azure, through obstore.

Each value is written to a new object that never changes, ``<key>/<token>-<uuid>``. One small object, ``<key>/head``,
names the current one and its token. Each change of the head is conditional on the head that was read before
(``If-Match``, generation).

The head's *body* contains the token, the owner and a nonce. An ETag alone is no fence: it is a hash of the contents, so
if a newer holder writes equal bytes, the ETag does not change, and a late PUT of the older holder would succeed.

* ``register.py``: load, store, read, sweep, once for sync and async. Read this first.
* ``head.py``: the head's body, and the paths of objects. No I/O.
* ``port.py``: the calls of obstore, and what its errors mean.
* ``fence.py``: ``ObjectFence`` and ``AsyncObjectFence``.
"""

from __future__ import annotations

from holdfast.fencing.objects.fence import AsyncObjectFence, ObjectFence

__all__ = ["AsyncObjectFence", "ObjectFence"]
