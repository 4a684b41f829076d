"""Message systems, task queues and replicated systems behind three interfaces (system.py, queue.py, cluster.py): one
file for each peer (README.md)."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .cluster import Cluster
from .queue import Queue
from .system import System


def every() -> list[System]:
    """Each message system of this folder, present or absent: the SYSTEM or SYSTEMS of its modules."""
    return _offered("SYSTEM")


def every_queue() -> list[Queue]:
    """Each task queue of this folder, present or absent: the TASK_QUEUE or TASK_QUEUES of its modules."""
    return _offered("TASK_QUEUE")


def every_cluster() -> list[Cluster]:
    """Each replicated system of this folder, present or absent: the REPLICATED of its modules."""
    return _offered("REPLICATED")


def queue_named(name: str) -> Queue:
    """The task queue with this name."""
    return next(queue for queue in every_queue() if queue.name == name)


def _offered(name: str) -> list:
    modules = [vars(import_module(f"{__name__}.{module.name}")) for module in iter_modules(__path__)]
    return [one for module in modules for one in [*module.get(f"{name}S", []), *filter(None, [module.get(name)])]]
