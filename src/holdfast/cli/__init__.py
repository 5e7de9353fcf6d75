"""The command ``holdfast``.

Read ``main.py`` first: it runs one subcommand, and makes one line and an exit code of an error. Then ``command.py``:
the table of subcommands. Each is a module or folder with ``configure`` and ``run``.

* ``parser.py``: the command line; ``exit_codes.py``: exit codes; ``stopping.py``: SIGINT, SIGTERM and SIGHUP;
  ``logs.py``: the library's log on stderr
* ``output.py``: writes to stdout and stderr, and escapes control characters; ``quoting.py``: words for a shell;
  ``masking.py``: hides secrets; ``terminal.py``, ``picture.py``: live output on a terminal
* ``connecting.py``: ``--url``, ``--profile``, ``--namespace``; ``lock_state.py``: locks as text and as JSON
* ``run/``, ``ls.py``, ``show.py``, ``breaking.py``, ``config.py``, ``doctor/``, ``demo/``, ``ladder/``,
  ``completion/``: the subcommands
"""
