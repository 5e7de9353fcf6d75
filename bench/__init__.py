"""Speed, fairness and cost of holdfast, measured beside other libraries and the floor, in one run on one machine.

``python -m bench [names…] [--json] [--quick] [--write]``. Only ratios can be compared between machines; absolute
figures are shown so that the ratios can be checked. Nothing here is a test: a missed target is printed as missed, and a
peer that is not installed is named. ``check/`` is for CI: it counts, and fails if a count has grown.

Read ``questions/uncontended.py`` first: a typical question.

* ``questions/``: one module for each question
* ``peers/``: the compared locks, one module for each library; ``floor.py``: the least that a Redis lock can cost
* ``harness.py``: rounds, medians, ratios, targets; ``outcome.py``: asks one question, and keeps its answer or failure
* ``contention.py``: threads and processes that contend; ``parallel.py``: threads with a name each;
  ``handing_over.py``: one holder, one waiter; ``workers.py``: the processes
* ``server_cost.py``: commands and CPU time of Redis servers
* ``machine.py``: the machine, and the load on it; ``placement.py``: which core a process runs on
* ``progress.py``: how far a run is
* ``report.py``: the tables; ``svg.py``, ``bars.py``, ``curves.py``: the pictures; ``readme.py``: the README's section
"""
