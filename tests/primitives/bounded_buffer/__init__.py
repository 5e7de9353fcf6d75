"""A bounded buffer shared by producers and consumers in processes that are killed and frozen.

``buffer.py``: the monitor; ``worker.py``: one producer or consumer as a process; ``run.py``: starts, kills and freezes
them, and collects what they recorded; ``history.py``: what must hold of it (pure).
"""
