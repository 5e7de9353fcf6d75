"""How a Redis server is reached. Read ``channel.py`` first: everything above is written on it.

* ``channel.py``: the port: a channel for callers, and one for the watchdog.
* ``blocking.py``: a pool of connections for threads; ``blocking_keeper.py``: the same for the watchdog.
* ``wire.py``: one blocking connection; ``in_flight.py``: several calls in one buffer on it.
* ``aio.py``: one shared connection for the tasks of an event loop; ``aio_pipe.py``: that connection;
  ``aio_connecting.py``: an attempt to connect, shared by its callers; ``aio_timeouts.py``: timeouts on a busy loop.
* ``group.py``: the port to several servers in parallel; ``blocking_group.py``, ``aio_group.py``: how they are asked.
* ``settings.py``: where a server is, and how to connect; ``handshake.py``: opening a connection through redis-py.
"""
