"""Connect to a Ray cluster, or start Ray on this machine."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shortlist.errors import OptionError, ShortlistError, import_extra

AUTO, LOCAL = "auto", "local"
ANY_ADDRESS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@contextmanager
def connected(address: str = AUTO, **local: Any) -> Iterator[Any]:
    """The module `ray`, connected until the end of the block. A connection that exists already is used and stays.

    address  "auto": the cluster that RAY_ADDRESS names or that runs on this machine; if there is none, as "local".
             "local": Ray on this machine alone, started here and stopped at the end. Otherwise HOST:PORT or ray://…
    local    arguments of `ray.init` if Ray is started here, such as num_cpus

    >>> with connected("auto") as ray:  # doctest: +SKIP
    ...     ray.cluster_resources()
    """
    ray = import_extra("ray", "working on a cluster", "ray")
    if ray.is_initialized():
        yield ray
        return
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    try:
        _connect(ray, address, local)
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str, local: dict[str, Any]) -> None:
    quiet = {"log_to_driver": False, "logging_level": "WARNING"}
    if address != LOCAL:
        try:
            ray.init(address=address, **quiet)
            return
        except (ConnectionError, ValueError) as error:
            if address != AUTO or os.environ.get("RAY_ADDRESS"):
                where = os.environ.get("RAY_ADDRESS") if address == AUTO else address
                raise OptionError(
                    f"there is no Ray cluster at {where} ({error}). Check the address, or use --cluster local."
                ) from None
    # Nothing is sent to Ray's makers, and nothing listens beyond this machine.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's default of 15 leaves workers next to nothing of a busy machine, and a training waits for its slowest worker.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with _on_loopback():
        ray.init(address=LOCAL, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet, **local)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """In the block, Ray takes 127.0.0.1 as it is. Otherwise it listens on all addresses of the machine instead."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before, in_environment = constants.ENABLE_RAY_CLUSTER, os.environ.get(ANY_ADDRESS)
    constants.ENABLE_RAY_CLUSTER, os.environ[ANY_ADDRESS] = False, "0"  # here, and in the processes that it starts
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        os.environ.pop(ANY_ADDRESS)
        if in_environment is not None:
            os.environ[ANY_ADDRESS] = in_environment


@contextmanager
def reraise(ray: Any) -> Iterator[None]:
    """Raise an error of ours that a worker raised as itself, without Ray's traceback around it."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause: BaseException | None = error
        # Ray's error is also an instance of the class of its cause, with a traceback as its text.
        while isinstance(cause, ray.exceptions.RayError) or (cause and not isinstance(cause, ShortlistError)):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is None:
            raise
        raise ShortlistError(f"on a worker: {cause}") from None
