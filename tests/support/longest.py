"""The modules and classes that take longest, which are begun first.

A worker gets all tests of a module or class at once, since they share servers. If it got a long one last, the other
workers would have nothing left to do meanwhile. Names that no longer exist do no harm; `--durations=0` shows new ones.
"""

from __future__ import annotations

from typing import Final

import pytest

#: From the longest to those that take some seconds.
_LONGEST: Final = (
    "conformance/test_engines.py::TestRedis",
    "conformance/test_engines.py::TestZooKeeper",
    "conformance/test_engines.py::TestMemory",
    "conformance/test_engines.py::TestRedlock",
    "conformance/test_engines.py::TestCluster",
    "conformance/test_engines.py::TestSqlite",
    "docs/test_code_blocks.py",
    "sqlite/test_sqlite_displaced.py",
    "docs/test_examples.py",
    "cli/ladder/test_ladder.py",
    "redis/test_redis_hand_over.py",
    "fencing/sql/test_frozen_holder.py",
    "docs/test_reference.py",
    "cli/run/test_run_exit_codes.py",
    "cli/test_demo.py",
    "primitives/test_interrupted_async.py",
    "redis/cluster/test_cluster_failover.py",
    "cli/ladder/test_one_redis.py",
    "redis/registers/test_redis_fused_operations.py",
    "zookeeper/faults/test_ensemble_kills.py",
    "primitives/test_bounded_buffer.py",
    "zookeeper/test_zookeeper_access.py",
    "docs/test_design_references.py",
    "cli/test_doctor_zookeeper.py",
    "primitives/test_rounds.py",
    "fencing/sql/test_django.py",
    "fencing/sql/test_every_connection.py",
    "cli/run/test_run_kills.py",
    "redis/faults/test_redis_replies.py",
    "zookeeper/faults/test_lost_connections.py",
    "redis/cluster/test_cluster_waiting.py",
    "zookeeper/faults/test_follower_cut_off.py",
    "redis/registers/test_redis_register_contract.py",
    "cli/run/test_run_command_side.py",
    "fencing/test_file_fence_processes.py",
    "zookeeper/test_zookeeper_lifecycle.py",
    "redis/faults/test_many_withdrawals.py",
    "docs/test_interop_results.py",
    "zookeeper/faults/test_register_faults.py",
    "redis/test_redis_cancelled_connections.py",
    "primitives/test_interrupted_twice.py",
    "cli/ladder/test_fence.py",
    "redis/test_redis_sentinel.py",
    "sqlite/test_sqlite_shares.py",
    "sqlite/test_sqlite_processes.py",
    "redis/redlock/test_redlock_outages.py",
    "cli/ladder/test_sessions.py",
    "redis/redlock/test_redlock_many_leases.py",
    "config/test_options.py",
    "redis/failover/test_sentinel_failover.py",
    "redis/cluster/test_cluster_renewals.py",
    "redis/failover/test_isolated_master.py",
    "zookeeper/test_zookeeper_withdrawals.py",
    "redis/registers/test_redis_register_servers.py",
    "core/test_interrupted_close.py",
    "docs/test_language.py",
    "redis/failover/test_replicas.py",
    "cli/run/test_run_signals.py",
    "zookeeper/faults/test_shared_objects.py",
    "redis/test_redis_grants.py",
    "core/test_layers.py",
    "redis/faults/test_redis_loss.py",
    "redis/redlock/test_redlock_contention.py",
    "redis/registers/test_redis_register_faults.py",
    "compat/test_redis_py.py",
    "redis/redlock/test_redlock_pauses.py",
    "redis/redlock/test_redlock_withdrawal.py",
    "redis/test_redis_interrupts.py",
    "zookeeper/test_zookeeper_sessions.py",
    "fencing/test_interleavings.py::TestMemory",
    "zookeeper/faults/test_frozen.py",
    "zookeeper/test_zookeeper_register_contract.py",
    "cli/test_ls_and_show.py",
    "redis/redlock/test_redlock_decisions.py",
    "zookeeper/test_zookeeper_renewals.py",
    "sqlite/test_sqlite_files.py",
)
_RANKS: Final = {f"tests/{scope}": rank for rank, scope in enumerate(_LONGEST)}


def put_longest_first(items: list[pytest.Item]) -> None:
    """The others stay in the order in which they are. For ``--dist loadscope --no-loadscope-reorder``, which otherwise
    begins with the modules that have most tests."""
    items.sort(key=lambda item: _RANKS.get(item.nodeid.partition("[")[0].rpartition("::")[0], len(_RANKS)))
