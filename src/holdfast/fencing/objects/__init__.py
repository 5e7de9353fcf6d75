"""ObjectFence: objects in S3, GCS or Azure, through obstore.

A value is written to an object of its own that never changes, ``<key>/<token>-<uuid>``. One small object,
``<key>/head``, says which of them counts, and under which token. Each change of the head is conditional on the head
that was read before (``If-Match``, generation).

The head's *body* has the token, the owner and a nonce. An ETag alone is no fence: it hashes the contents, so a newer
holder that wrote equal bytes would leave it as it was, and the older one's late PUT would pass.

* ``register.py``: load, store, read, sweep, once for sync and async. Read this first.
* ``head.py``: the head's body, and where objects are. No I/O.
* ``port.py``: what is asked of obstore, and what its errors mean.
* ``fence.py``: ``ObjectFence`` and ``AsyncObjectFence``.
"""

from __future__ import annotations

from holdfast.fencing.objects.fence import AsyncObjectFence, ObjectFence

__all__ = ["AsyncObjectFence", "ObjectFence"]
