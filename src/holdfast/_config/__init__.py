"""Configuration: what ``connect`` and ``configure`` take, from which sources, and which engine it means.

Read ``targets`` first: a URL, a driver's client or nothing becomes a Target for an engine. Then ``settings``, which
finds the default target.

* ``options``: holdfast's own options, validated. ``durations``, ``names``, ``labels``: their values.
  ``common_options``: the same for type checkers.
* ``parameters``: names of options, and errors with the nearest name. ``foreign_keywords``: names known from other lock
  libraries, refused with what to write instead.
* ``url_parts``: the generic parts of a URL. Each engine reads its own URLs and options, in its folder.
* ``configured``: what ``configure()`` has set. ``environment``: HOLDFAST_* variables. ``file``: the settings file with
  profiles. ``url_file``: a file that contains only a URL. ``small_file``: reads both kinds of file. ``default``: the
  result of each source.

Nothing here connects, imports a driver, or searches for a file. No error shows a password, user info, or the content of
a file.
"""
