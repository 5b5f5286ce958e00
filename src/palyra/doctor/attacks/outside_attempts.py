"""Attempts on other processes and on the network, as data."""

from typing import Any, Final

from palyra.doctor.attacks.attempt import AttackClass, Attempt, Layers
from palyra.sandbox.domain.profile import Layer

_PIDS: Final = (Layer.PID_NAMESPACE,)
_NET: Final = (Layer.NETWORK_NAMESPACE, Layer.EGRESS)
_LANDLOCK: Final = (Layer.LANDLOCK,)
# Ways that Landlock overlooks and the filter must close, so that its rules for TCP mean something.
_TCP: Final = (Layer.SECCOMP, Layer.LANDLOCK)
# Tier B has no namespaces: the host's processes show, and of its network only TCP is closed.
_NOT_PROMISED: Final[Layers] = ()


def _process(name: str, title: str, probe: str, *, c: Layers = _PIDS, b: Layers = _LANDLOCK, **given: Any) -> Attempt:
    named = ("victim", "victim_address", "victim_size", "victim_descriptor", "victim_comm", "token")
    arguments = {each: "{" + each + "}" for each in named} | given
    return Attempt(
        id=f"processes.{name}", kind=AttackClass.PROCESSES, title=title, probe=probe, c=c, b=b, arguments=arguments
    )


def _network(key: str, title: str, probe: str, /, *, c: Layers = _NET, b: Layers | None, **given: Any) -> Attempt:
    return Attempt(
        id=f"network.{key}",
        kind=AttackClass.NETWORK,
        title=title,
        probe=probe,
        c=c,
        b=b,
        arguments={"token": "{token}", **given},
    )


PROCESS_ATTEMPTS: Final = (
    _process("signal", "end a process of the host", "signal_victim", deadly=True),
    _process("signal_zero", "find a process of the host by a signal", "signal_victim", deadly=False),
    _process("signal_pidfd", "end a process of the host by a descriptor", "pidfd_victim"),
    _process("ptrace", "trace a process of the host", "trace_victim", b=(Layer.SECCOMP, Layer.LANDLOCK)),
    _process(
        "vm_readv", "read the memory of a process of the host", "victim_memory", b=(Layer.SECCOMP, Layer.LANDLOCK)
    ),
    _process("mem_file", "read the memory of a process of the host through /proc", "victim_memory_file"),
    _process("pidfd_getfd", "take a descriptor of a process of the host", "victim_descriptor", b=(Layer.SECCOMP,)),
    _process("prlimit", "change the limits of a process of the host", "victim_limits", b=(Layer.SECCOMP,)),
    _process("visible", "see the processes of the host", "see_processes"),
    _process("environ", "read the environment of a process of the host", "read", paths=["/proc/{victim}/environ"]),
    _process(
        "command_line", "read the command line of a process of the host", "read", paths=["/proc/{victim}/cmdline"]
    ),
    _process("end_keeper", "end the supervisor of the sandbox", "end_supervisor", runner="{runner}"),
    _process(
        "change_user",
        "become another user",
        "change_user",
        c=(Layer.CAPABILITIES, Layer.USER_NAMESPACE),
        b=(Layer.CAPABILITIES, Layer.NO_NEW_PRIVS),
    ),
    _process(
        "shared_memory",
        "attach shared memory of the host",
        "shared_memory",
        c=(Layer.IPC_NAMESPACE,),
        b=_NOT_PROMISED,
        shm="{shm}",
    ),
    _process(
        "raise_limits",
        "raise one's own limits",
        "raise_limits",
        c=(Layer.CAPABILITIES, Layer.RLIMITS),
        b=(Layer.RLIMITS,),
    ),
    _process(
        "priority",
        "raise one's own priority",
        "priority",
        c=(Layer.CAPABILITIES, Layer.USER_NAMESPACE),
        b=(Layer.CAPABILITIES, Layer.NO_NEW_PRIVS),
    ),
    _process(
        "oom_score",
        "escape the killer of processes when memory is short",
        "immortality",
        c=(Layer.CAPABILITIES, Layer.MINIMAL_ROOT),
        b=_LANDLOCK,
    ),
)

NETWORK_ATTEMPTS: Final = (
    _network("tcp", "connect to the host's loopback", "connect_tcp", b=_LANDLOCK, way="tcp", port="{tcp}"),
    _network("tcp6", "connect to the host's IPv6 loopback", "connect_tcp", b=_LANDLOCK, way="ipv6", port="{tcp6}"),
    _network("fastopen", "connect by TCP Fast Open", "connect_tcp", b=_TCP, way="fastopen", port="{tcp}"),
    _network(
        "fastopen_sendmsg",
        "connect by TCP Fast Open (sendmsg)",
        "connect_tcp",
        b=_TCP,
        way="fastopen_sendmsg",
        port="{tcp}",
    ),
    _network("mptcp", "connect by Multipath TCP", "connect_tcp", b=_TCP, way="mptcp", port="{tcp}"),
    _network("udp", "send a datagram to the host's loopback", "send_udp", b=_NOT_PROMISED, port="{udp}"),
    _network("listen", "be reached from the host", "listen_tcp", b=_LANDLOCK, free_port="{free_port}"),
    _network(
        "abstract_socket",
        "connect to an abstract unix socket of the host",
        "connect_unix",
        b=(Layer.SECCOMP, Layer.LANDLOCK),
        name="{abstract}",
        abstract=True,
    ),
    _network(
        "path_socket",
        "connect to a unix socket outside the workspace",
        "connect_unix",
        c=(Layer.MINIMAL_ROOT, Layer.MOUNT_NAMESPACE),
        b=(Layer.SECCOMP,),
        name="{socket}",
        abstract=False,
    ),
    _network("routes", "find a route out", "routes", b=_NOT_PROMISED),
    _network("interfaces", "find an interface beside loopback", "interfaces", b=_NOT_PROMISED),
    _network("dns", "reach a name server", "resolver", b=_NOT_PROMISED),
)
