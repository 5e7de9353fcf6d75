"""The fence for SQL databases: it checks the token inside the user's own transaction.

Read ``fence.py`` first.

* ``fence.py``: :class:`SqlFence`, the public class;
* ``table.py``: the validated name of the fence's table, and the table as SQLAlchemy describes it;
* ``statements.py``: every SQL text, for each dialect and placeholder style;
* ``plan.py``: which statements a check runs and what their answers mean. Pure: no driver, no connection;
* ``database.py``: what a check needs of a connection, and the errors in it that have a remedy;
* ``connections.py``: which kind of connection was passed; imports no driver that the caller has not imported;
* ``dbapi.py``, ``sqlalchemy.py``, ``django.py``: one file for each kind.
"""

from __future__ import annotations

from holdfast.fencing.sql.fence import SqlFence

__all__ = ["SqlFence"]
