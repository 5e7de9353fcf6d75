"""Options kept in a dict, annotated with the engine family."""

from typing import Unpack

import holdfast

redis_options: holdfast.RedisOptions = {"ttl": "30s", "username": "app", "db": 2, "ssl_check_hostname": True}
sentinel_options: holdfast.SentinelOptions = {"replicas": 1, "sentinel_password": "secret"}
cluster_options: holdfast.ClusterOptions = {"sharded_pubsub": "auto"}
zookeeper_options: holdfast.ZooKeeperOptions = {"tick": 2, "acl": "creator", "use_ssl": True}
sqlite_options: holdfast.SqliteOptions = {"namespace": "shop"}
memory_options: holdfast.MemoryOptions = {"label": "worker"}

redis_options["tick"] = 2  # error
redis_options["sharded_pubsub"] = "auto"  # error
redis_options["db"] = None  # error
sentinel_options["sharded_pubsub"] = "auto"  # error
cluster_options["sentinel_password"] = "secret"  # error
zookeeper_options["db"] = 2  # error
zookeeper_options["timeout"] = 5  # error
sqlite_options["password"] = "secret"  # error
memory_options["path"] = "/tmp"  # error

holdfast.connect("redis://localhost", **redis_options)
holdfast.connect("redis+sentinel://s1/master", **sentinel_options)
holdfast.connect("redis+cluster://c1", **cluster_options)
holdfast.aio.connect("zookeeper://z1", **zookeeper_options)
holdfast.configure("sqlite:", **sqlite_options)
holdfast.connect("memory:", **memory_options)


def shop_locks(**options: Unpack[holdfast.ConnectOptions]) -> holdfast.Client:
    return holdfast.connect(**options)


shop_locks(ttl="30s", profile="production")
shop_locks(tll="30s")  # error
