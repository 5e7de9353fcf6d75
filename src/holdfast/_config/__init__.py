"""Where settings come from: the environment, a settings file with profiles, a file that contains only a URL.

Read ``default`` first: what a source returns. ``environment`` and ``file`` are the two sources, ``url_file`` reads a
mounted secret, ``small_file`` the text of either. ``holdfast.settings`` puts them in order, below ``configure()``.
Nothing here connects, imports a driver, or searches for a file; no error shows a URL or the content of a file.
"""
