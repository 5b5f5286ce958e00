from palyra.sandbox.layers.seccomp import rules
from palyra.sandbox.layers.syscall_table import SYSCALLS

MUST_BE_NAMED = [
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "mount",
    "umount2",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "move_mount",
    "open_tree",
    "mount_setattr",
    "pivot_root",
    "chroot",
    "userfaultfd",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "swapon",
    "swapoff",
    "reboot",
    "acct",
    "quotactl",
    "clock_settime",
    "settimeofday",
    "setns",
    "unshare",
    "clone",
    "clone3",
    "ioctl",
    "socket",
    "personality",
    "name_to_handle_at",
    "open_by_handle_at",
    "pidfd_getfd",
    "process_madvise",
    "kcmp",
    "lookup_dcookie",
    "modify_ldt",
    "ioperm",
    "iopl",
    "move_pages",
    "mbind",
]


def test_every_entry_says_why() -> None:
    for unix in (True, False):
        entries = rules(unix_sockets=unix)
        assert all(len(rule.reason) >= 8 for rule in entries)
        assert len({rule.call for rule in entries}) == len(entries)


def test_nothing_the_design_names_is_missing() -> None:
    assert set(MUST_BE_NAMED) <= {rule.call for rule in rules(unix_sockets=True)}


def test_every_entry_is_known_on_some_machine() -> None:
    known = set().union(*SYSCALLS.values())
    assert {rule.call for rule in rules(unix_sockets=True)} <= known
