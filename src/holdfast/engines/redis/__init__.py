"""The Redis engine: one server now; Sentinel, Cluster and Redlock find their place beside it."""
