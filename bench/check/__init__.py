"""``make bench-check``: has a common operation become more expensive than what was recorded?

Time is too noisy to compare between runs, so this counts: bytecode instructions and calls of the calling thread, and
requests and commands of the server. These are the same in each run, on each machine, with one Python version. CPU time
is shown beside them, in units of a fixed loop in the same process, and so is the server's time in scripts; neither can
fail.

* ``operations.py``: what is counted
* ``counting.py``: how; ``calibration.py``: CPU time in units of the fixed loop
* ``comparison.py``: recorded and counted figures compared
* ``recorded.json``: the figures, by Python version; ``python -m bench.check --record`` writes those of this one
"""
