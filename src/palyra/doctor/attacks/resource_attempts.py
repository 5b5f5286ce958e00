"""Attempts to use more than was given, and to stay when the call is over, as data."""

import signal
from typing import Any, Final

from palyra.doctor.attacks.attempt import AttackClass, Attempt, Layers
from palyra.limits import MIB
from palyra.sandbox.domain.profile import Layer
from palyra.sandbox.limits import SHM_BYTES

_PIDS: Final = 40
_MEMORY: Final = 160 * MIB
_FILE: Final = 4 * MIB
_KILLED: Final = (int(signal.SIGKILL),)
_TREE: Final = (Layer.TREE_KILL, Layer.PID_NAMESPACE)


def _resource(name: str, title: str, probe: str, *, c: Layers, b: Layers | None, **more: Any) -> Attempt:
    return Attempt(id=f"resources.{name}", kind=AttackClass.RESOURCES, title=title, probe=probe, c=c, b=b, **more)


def _memory(name: str, title: str, reserve: bool | str) -> Attempt:
    held = (Layer.CGROUP_MEMORY, Layer.RLIMITS)
    return _resource(
        name,
        title,
        "memory",
        c=held,
        b=held,
        arguments={"reserve": reserve, "most": 2 * _MEMORY},
        limits={"memory_bytes": _MEMORY},
        ended_by=_KILLED,
    )


def _linger(name: str, title: str, way: str) -> Attempt:
    return _resource(name, title, "linger", c=_TREE, b=(Layer.TREE_KILL,), arguments={"way": way})


def _flood(stream: str) -> Attempt:
    return _resource(
        f"flood_{stream}",
        f"print without end ({stream})",
        "flood",
        c=(Layer.OUTPUT_QUOTA,),
        b=(Layer.OUTPUT_QUOTA,),
        arguments={"stream": stream, "most": 64 * MIB},
        refused_by=("sandbox.quota_exceeded",),
    )


def _file(name: str, title: str, probe: str, **given: Any) -> Attempt:
    return _resource(
        name,
        title,
        probe,
        c=(Layer.RLIMITS,),
        b=(Layer.RLIMITS,),
        arguments={"most": 4 * _FILE, **given},
        limits={"file_bytes": _FILE},
        ended_by=(int(signal.SIGXFSZ),),
    )


RESOURCE_ATTEMPTS: Final = (
    _resource(
        "forks",
        "start more processes than allowed",
        "forks",
        c=(Layer.CGROUP_PIDS, Layer.RLIMITS),
        b=(Layer.CGROUP_PIDS, Layer.RLIMITS),
        # Outside a namespace the limit is added to what the user already runs.
        arguments={"most": 20 * _PIDS},
        limits={"pids": _PIDS},
        not_for_root=frozenset({Layer.RLIMITS}),
        ended_by=_KILLED,
    ),
    _memory("memory", "use more memory than allowed", True),
    _memory("memory_noreserve", "use more memory than allowed, unreserved", False),
    _memory("memory_shared", "use more memory than allowed, shared", "shared"),
    _resource(
        "memory_in_sum",
        "use more memory than allowed, in several processes",
        "memory_in_sum",
        c=(Layer.CGROUP_MEMORY,),
        b=(Layer.CGROUP_MEMORY,),
        arguments={"each": _MEMORY // 2, "count": 4},
        limits={"memory_bytes": _MEMORY},
        ended_by=_KILLED,
    ),
    _file("big_file", "write a file that is too large", "big_file", path="big"),
    _file("sparse_file", "make a sparse file that is too large", "sparse_file", way="truncate"),
    _file("fallocate", "reserve a file that is too large", "sparse_file", way="fallocate"),
    _resource(
        "memory_files",
        "fill a file system in memory",
        "big_file",
        c=(Layer.MINIMAL_ROOT,),
        b=None,
        arguments={"path": "/dev/shm/big", "most": SHM_BYTES + 16 * MIB},  # noqa: S108  the sandbox's own
    ),
    _resource(
        "descriptors",
        "open more files than allowed",
        "descriptors",
        c=(Layer.RLIMITS,),
        b=(Layer.RLIMITS,),
        arguments={"most": 256},
        limits={"open_files": 128},
    ),
    _flood("stdout"),
    _flood("stderr"),
    _resource(
        "deadline",
        "stay past the deadline, deaf to signals",
        "sleeper",
        c=(Layer.DEADLINE,),
        b=(Layer.DEADLINE,),
        arguments={"seconds": 10},
        limits={"timeout_ms": 600},
        refused_by=("sandbox.timed_out",),
    ),
    _resource(
        "processor_time",
        "use more processor time than allowed",
        "spinner",
        c=(Layer.RLIMITS,),
        b=(Layer.RLIMITS,),
        arguments={"seconds": 5},
        limits={"cpu_seconds": 1},
        ended_by=(*_KILLED, int(signal.SIGXCPU)),
    ),
    _linger("setsid", "leave a process in another session behind", "setsid"),
    _linger("silent", "leave a process behind that closed its output", "silent"),
    _linger("double_fork", "leave a daemon behind", "double"),
    _linger("stopped", "leave a stopped process behind", "stopped"),
    _linger("zombies", "leave dead processes behind", "zombie"),
    _resource("relay", "flee from being killed by forking", "relay", c=_TREE, b=(Layer.TREE_KILL,)),
)
