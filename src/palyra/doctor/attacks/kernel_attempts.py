"""Attempts on the kernel, as data.

A call that could do harm gets arguments with which it cannot succeed, checked by the kernel only after the right to
make the call at all: then any answer but a refusal shows that the call got through.
"""

import errno
import signal
from typing import Any, Final

from palyra.doctor.attacks.attempt import AttackClass, Attempt, Layers
from palyra.sandbox.domain.profile import Layer

_FILTER: Final = (Layer.SECCOMP,)
_STRONG: Final = (Layer.CAPABILITIES, Layer.NO_NEW_PRIVS)
_AT_FDCWD: Final = -100
_NOWHERE: Final = "/nonexistent/palyra"


def _call(name: str, title: str, *arguments: Any, c: Layers = _FILTER, b: Layers = _FILTER, **more: Any) -> Attempt:
    return _kernel(name, title, "syscall", c=c, b=b, arguments={"call": name, "arguments": list(arguments), **more})


def _kernel(name: str, title: str, probe: str, c: Layers = _FILTER, b: Layers | None = _FILTER, **more: Any) -> Attempt:
    return Attempt(
        id=f"kernel.{name}",
        kind=AttackClass.KERNEL,
        title=title,
        probe=probe,
        c=c,
        b=b,
        ended_by=(int(signal.SIGSYS),),
        **more,
    )


def _socket(name: str, title: str, family: int, kind: int, protocol: int = 0) -> Attempt:
    given = {"family": family, "type": kind, "protocol": protocol}
    return _kernel(f"socket_{name}", title, "socket_family", arguments=given)


def _file(name: str, title: str, probe: str, *paths: str) -> Attempt:
    found = (Layer.MINIMAL_ROOT, Layer.MOUNT_NAMESPACE)
    return _kernel(name, title, probe, c=found, b=(Layer.LANDLOCK,), arguments={"paths": list(paths)})


# struct perf_event_attr: a software clock, of this process only. struct bpf_attr: an array of one number.
_PERF: Final = {"hex": "01000000" + "80000000" + "00" * 120}
_MAP: Final = {"hex": "02000000" + "04000000" + "04000000" + "01000000" + "00" * 56}
_RING: Final = {"hex": "00" * 120}

KERNEL_ATTEMPTS: Final = (
    _call("io_uring_setup", "make an io_uring", 4, _RING),
    _kernel("ptrace_child", "trace a process", "trace_child"),
    _call("process_vm_writev", "write the memory of another process", 1, None, 0, None, 0, 0),
    _call("kcmp", "compare the inside of two processes", 1, 1, 0, 0, 0),
    _call("unshare", "make a user namespace (unshare)", 0x10000000),
    _kernel("clone_newuser", "make a user namespace (clone)", "new_user_namespace", arguments={"call": "clone"}),
    _kernel("clone3_newuser", "make a user namespace (clone3)", "new_user_namespace", arguments={"call": "clone3"}),
    _kernel("nested_mount", "make a user namespace and mount in it", "mount_in_new_namespace"),
    _call("mount", "mount a file system", "none", "/nonexistent", "tmpfs", 0, None),
    _call("umount2", "unmount a file system", _NOWHERE, 0),
    _call("fsopen", "mount by the new calls (fsopen)", "tmpfs", 1),
    _call("open_tree", "copy a mount (open_tree)", _AT_FDCWD, ".", 1),
    _call("move_mount", "move a mount", -1, "", -1, "", 0),
    _call("mount_setattr", "change a mount", -1, "", 0, {"hex": "00" * 32}, 32),
    _call("pivot_root", "change the root of everything", _NOWHERE, _NOWHERE),
    _call("chroot", "change one's own root", "."),
    _call("setns", "enter another namespace", -1, 0),
    _call("bpf", "load a map into the kernel", 0, _MAP, 72),
    _call("perf_event_open", "measure with the kernel's counters", _PERF, 0, -1, -1, 0),
    _call("add_key", "store a key in the kernel", "user", "palyra-attack", "x", 1, -2),
    _call("keyctl", "use the kernel's key rings", 0, -3, 0),
    _call("request_key", "have the kernel ask for a key", "user", "palyra-attack", None, 0),
    _call("userfaultfd", "handle page faults by oneself", 0o2000000 | 1),
    _call("kexec_load", "load another kernel", 0, 0, None, 0xFFFF),
    _call("init_module", "load a module", None, 0, ""),
    _call("finit_module", "load a module from a file", -1, "", 0),
    _call("delete_module", "unload a module", "palyra-no-such-module", 0),
    _call("fanotify_init", "watch every file of the machine", 0, 0),
    _call("personality", "switch off the randomness of addresses", 0x0040000),
    _call("sethostname", "change the host's name", None, -1),
    _call("reboot", "restart the machine (with a wrong password)", 0, 0, 0, None),
    _call("swapon", "add swap", _NOWHERE, 0),
    _call("syslog", "read the kernel's log", 10, None, 0),
    _call("quotactl", "change quotas", 0x800002 << 8, _NOWHERE, 0, None),
    _call("acct", "switch on accounting", _NOWHERE),
    _call("iopl", "drive the hardware's ports", 3),
    _call("process_madvise", "advise about another process's memory", -1, None, 0, 0, 0),
    _call("migrate_pages", "move another process's memory", 1, 0, None, None, denied=[errno.ESRCH]),
    _call("clock_settime", "set the clock (to a time that cannot be)", 0, {"hex": "ff" * 16}),
    _call("setdomainname", "change the domain's name", None, -1),
    _call("swapoff", "take swap away", _NOWHERE),
    _call("fspick", "change a mounted file system", _AT_FDCWD, _NOWHERE, 0),
    _call("kexec_file_load", "load another kernel from a file", -1, -1, 0, None, 0xFFFF),
    _call("modify_ldt", "change the processor's tables", 0, {"hex": "00" * 16}, 16),
    _call("process_mrelease", "take the memory of a dying process", -1, 0),
    _kernel("compat_entry", "enter by the calls of 32-bit programs", "compat_entry"),
    _kernel("x32_entry", "enter by the calls of x32 programs", "x32_entry"),
    _kernel("tiocsti", "type into a terminal (TIOCSTI)", "terminal", arguments={"request": 0x5412}),
    _kernel("tioclinux", "paste into a console (TIOCLINUX)", "terminal", arguments={"request": 0x541C}),
    _socket("packet", "read raw frames (AF_PACKET)", 17, 3, 0x0300),
    _socket("raw", "make raw packets", 2, 3, 1),
    _socket("netfilter", "talk to the packet filter (AF_NETLINK)", 16, 3, 12),
    _socket("audit", "talk to the audit system (AF_NETLINK)", 16, 3, 9),
    _socket("vsock", "talk to the hypervisor (AF_VSOCK)", 40, 1),
    _socket("alg", "use the kernel's ciphers (AF_ALG)", 38, 5),
    _socket("bluetooth", "use Bluetooth", 31, 3, 1),
    _socket("key", "talk to IPsec (AF_KEY)", 15, 3, 2),
    _socket("xdp", "bypass the network stack (AF_XDP)", 44, 3),
    _socket("can", "talk to a vehicle bus (AF_CAN)", 29, 3, 1),
    _kernel("network_settings", "change the host's interfaces", "network_settings", c=_STRONG, b=_STRONG),
    _kernel(
        "setuid_program",
        "get rights from a setuid program",
        "privileged_program",
        c=(Layer.NO_NEW_PRIVS,),
        b=(Layer.NO_NEW_PRIVS,),
    ),
    _kernel("core_dump", "have the memory of a crash dumped", "core_dump", c=(Layer.RLIMITS,), b=(Layer.RLIMITS,)),
    _file("sysrq", "open the emergency keys for writing", "open_for_writing", "/proc/sysrq-trigger"),
    _file(
        "sysctl",
        "open the kernel's settings for writing",
        "open_for_writing",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/kernel/hostname",
    ),
    _file(
        "sysfs",
        "open the kernel's objects for writing",
        "open_for_writing",
        "/sys/power/state",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ),
    _file(
        "cgroup_release",
        "open control groups for writing",
        "open_for_writing",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory/release_agent",
        "/sys/fs/cgroup/pids/release_agent",
        "/sys/fs/cgroup/unified/cgroup.procs",
        "/sys/fs/cgroup/systemd/release_agent",
    ),
    _file("memory_devices", "open the machine's memory", "open_for_reading", "/dev/mem", "/dev/kmem", "/dev/port"),
    _file("kernel_memory", "open the kernel's memory and log", "open_for_reading", "/proc/kcore", "/dev/kmsg"),
    _file("disks", "open the machine's disks", "open_for_reading", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/dm-0"),
)
