"""Redis Cluster: slots that move, servers that die, and locks that live through it or are told lost."""
