"""The benchmark itself is code too: a wrong ratio would be published."""
