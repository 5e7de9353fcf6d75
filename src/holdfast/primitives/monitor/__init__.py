"""Monitors: shared variables, and the only operations on them. For callers of any process.

One operation runs at a time (the monitor's lock has its name), and may wait for conditions. The variables are the value
of a register: loaded when an operation begins, stored when it ends or waits, and not stored if it raises.

* ``variables.py``: which variables a class has, and whether values fit their annotations; ``state.py``: their JSON
* ``operations.py``: ``Monitor``, ``AsyncMonitor``, ``synchronized``; ``opened.py``: the variables during an operation
* ``conditions.py``: ``condition()``
"""

from __future__ import annotations

from holdfast.primitives.monitor.conditions import AsyncMonitorCondition as AsyncMonitorCondition
from holdfast.primitives.monitor.conditions import MonitorCondition as MonitorCondition
from holdfast.primitives.monitor.conditions import condition as condition
from holdfast.primitives.monitor.operations import AsyncMonitor as AsyncMonitor
from holdfast.primitives.monitor.operations import Monitor as Monitor
from holdfast.primitives.monitor.operations import synchronized as synchronized
