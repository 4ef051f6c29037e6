"""For tests of the cluster: Ray with two small nodes on this machine."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

STORE_BYTES = 100 << 20


@contextmanager
def two_nodes(num_cpus: int = 1) -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster` on 127.0.0.1 with two nodes of one core each, and this process connected to it.

    num_cpus  how many cores each node claims to have
    """
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": num_cpus, "object_store_memory": STORE_BYTES, "node_ip_address": "127.0.0.1"}
    # A short path, because sockets lie in it, and one of our own, so that "auto" finds no other cluster.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_worker_niceness", "0")  # by default, workers wait for whatever else a busy machine does
        # Otherwise Ray replaces 127.0.0.1 by the address of the machine, where nothing listens.
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
        (Path(folder) / "ray").mkdir()
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            cluster.add_node(**node)
            ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
