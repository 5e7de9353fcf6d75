"""The embedded engine: one SQLite file, any number of processes of one user on one host."""
