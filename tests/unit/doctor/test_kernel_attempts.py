from palyra.doctor.attacks.kernel_attempts import KERNEL_ATTEMPTS
from palyra.sandbox.layers.syscall_table import SYSCALLS

# With any other arguments these would change the machine.
HARMLESS = {
    "reboot": [0, 0, 0, None],
    "kexec_load": [0, 0, None, 0xFFFF],
    "init_module": [None, 0, ""],
    "sethostname": [None, -1],
    "setdomainname": [None, -1],
}


def test_dangerous_calls_cannot_succeed() -> None:
    made = {each.arguments["call"]: each.arguments["arguments"] for each in KERNEL_ATTEMPTS if each.probe == "syscall"}
    for name, arguments in HARMLESS.items():
        assert made[name] == arguments
    assert made["clock_settime"] == [0, {"hex": "ff" * 16}]
    assert "vhangup" not in made
    for name in ("swapon", "swapoff", "acct", "pivot_root", "umount2"):
        assert made[name][0].startswith("/nonexistent/")


def test_the_calls_of_the_design_are_tried() -> None:
    made = {each.arguments.get("call") for each in KERNEL_ATTEMPTS}
    assert {"io_uring_setup", "unshare", "clone", "clone3", "mount", "fsopen", "open_tree", "move_mount", "bpf"} <= made
    assert {"perf_event_open", "add_key", "keyctl", "userfaultfd", "kexec_load", "setns", "personality"} <= made
    assert made - {None} <= SYSCALLS["x86_64"].keys()


def test_files_of_the_system_are_opened_and_never_written() -> None:
    touching = [each for each in KERNEL_ATTEMPTS if "paths" in each.arguments]
    assert {each.probe for each in touching} == {"open_for_writing", "open_for_reading"}
