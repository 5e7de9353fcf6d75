"""Speed, fairness and cost of holdfast, measured beside other libraries and the floor, in one run on one machine.

``python -m bench [names…] [--json] [--quick] [--write]``. Only ratios can be compared between machines; absolute
figures are shown so that the ratios can be checked. Nothing here is a test: a missed target is printed as missed.

Read ``questions/uncontended.py`` first: a typical question.

* ``questions/``: one module for each question
* ``harness.py``: rounds, medians, ratios; ``outcome.py``: asks one question, and keeps its answer or failure
* ``mutexes.py``: the compared locks behind one interface; ``floor.py``: the least that a Redis lock can cost
* ``contention.py``: threads that contend for one name, in the processes of ``workers.py``
* ``commands.py``: counts the commands that a Redis server runs
* ``machine.py``: the machine, and the load on it; ``placement.py``: which core a process runs on
* ``report.py``: the tables; ``picture.py``: the chart
"""
