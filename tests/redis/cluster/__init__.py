"""Redis Cluster: moving slots and dying servers; locks survive them or are reported as lost."""
