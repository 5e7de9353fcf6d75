"""The command ``holdfast``.

Read ``main`` first: one subcommand, one exit code, one line for an error. Then ``command``: the table of subcommands,
each a module or folder with ``configure`` and ``run``.

* ``parser``, ``exit_codes``, ``stopping``, ``logs``: what all subcommands share on their way in and out;
* ``output``: the only place that writes to stdout and stderr, and makes names visible; ``quoting``, ``masking``;
* ``connecting``: ``--url``, ``--profile``, ``--namespace``; ``lock_state``: locks and holders as lines and as JSON;
* ``ls``, ``show``, ``breaking``, ``config``, ``completion/``, ``doctor/``, ``demo/``: the subcommands.
"""
