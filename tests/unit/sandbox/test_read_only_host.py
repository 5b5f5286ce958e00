"""The steps that hold the host read-only, in order. tests/security/test_mount_race_attacks shows that they do."""

import struct

from palyra.sandbox.launch import LaunchSpec, LaunchStage, ReadOnlyHost
from palyra.sandbox.plan_segment import Segment
from palyra.sandbox.read_only_host import hold_read_only
from palyra.sandbox.syscall_table import SYSCALLS
from unit.sandbox.test_start_plan import decoded, plan, text_at

RECURSIVE = 0x8000


def steps(host: ReadOnlyHost) -> list[tuple[str, str]]:
    made = Segment(SYSCALLS["x86_64"])
    hold_read_only(made, host, (20, 21, 22))
    assert {step.stage for step in made.steps} == {LaunchStage.MOUNTS}
    return [(step.call, step.subject) for step in made.steps]


def test_an_administrator_needs_no_user_namespace() -> None:
    assert steps(ReadOnlyHost(writable=b"/w")) == [
        ("unshare", ""),
        ("mount_setattr", "/"),
        ("open_tree", "/proc"),
        ("openat", "/w"),
        ("open_tree", "/w"),
        ("mount_setattr", "/"),
        ("move_mount", "/w"),
        ("close", ""),
        ("close", ""),
        ("move_mount", "/proc"),
        ("close", ""),
    ]


def test_an_ordinary_user_maps_itself_before_anything_is_mounted() -> None:
    made = steps(ReadOnlyHost(writable=b"/w", ids=(7, 8)))
    assert made[:3] == [("unshare", ""), ("prctl", ""), ("openat", "/proc/self/setgroups")]
    assert made[11] == ("mount_setattr", "/")
    assert [subject for call, subject in made if call == "write"] == [
        "/proc/self/setgroups",
        "/proc/self/uid_map",
        "/proc/self/gid_map",
    ]


def test_a_read_only_call_leaves_only_proc_writable() -> None:
    assert [subject for call, subject in steps(ReadOnlyHost()) if call == "move_mount"] == ["/proc"]


def test_protected_names_are_mounted_on_themselves_and_nothing_is_made() -> None:
    mounted = ((b"/w/.git", False), (b"/w/.git/config", True))
    made = steps(ReadOnlyHost(writable=b"/w", mounted=mounted))
    assert [step for step in made if step[1].startswith("/w/")] == [
        ("openat", "/w/.git"),
        ("open_tree", "/w/.git"),
        ("move_mount", "/w/.git"),
        ("openat", "/w/.git/config"),
        ("open_tree", "/w/.git/config"),
        ("mount_setattr", "/w/.git/config"),
        ("move_mount", "/w/.git/config"),
    ]
    # After the workspace, which would otherwise cover them.
    assert made.index(("move_mount", "/w")) < made.index(("openat", "/w/.git"))
    spec = LaunchSpec(argv=(b"/bin/true",), read_only_host=ReadOnlyHost(writable=b"/w", mounted=mounted))
    flags = [arguments[2] for name, arguments, _ in decoded(plan(spec).encoded) if name == "openat"]
    assert flags and not any(flag & 0o100 for flag in flags), "no O_CREAT"


def test_in_a_plan_it_comes_after_the_control_groups_and_nothing_of_it_may_fail() -> None:
    host = ReadOnlyHost(writable=b"/home/a b", ids=(1000, 1001))
    spec = LaunchSpec(argv=(b"/bin/true",), cgroup_procs=("/cg",), read_only_host=host, pass_fds=(16, 17))
    made = plan(spec)
    stages = list(dict.fromkeys(step.stage for step in made.steps))
    assert stages[1:5] == [
        LaunchStage.CGROUP,
        LaunchStage.SESSION,
        LaunchStage.MOUNTS,
        LaunchStage.WORKING_DIRECTORY,
    ]
    records = decoded(made.encoded)
    assert all(control == 0 for _, _, control in records)
    written = [made.encoded[at : at + size] for name, (_, at, size, *_), _ in records if name == "write"]
    assert written == [b"0", b"deny", b"1000 1000 1", b"1001 1001 1"]
    settings = [
        (flags, struct.unpack_from("<4Q", made.encoded, at))
        for name, (_, _, flags, at, _, _), _ in records
        if name == "mount_setattr"
    ]
    assert settings == [(RECURSIVE, (0, 0, 1 << 18, 0)), (RECURSIVE, (1, 0, 0, 0))]
    places = [text_at(made.encoded, at) for name, (_, at, *_), _ in records if name in ("openat", "open_tree")]
    assert places[-3:] == [b"/proc", b"/home/a b", b""]
    # The lowest free numbers, each used for what was opened under it.
    (tree, _, place, *_), (proc, *_) = [arguments for name, arguments, _ in records if name == "move_mount"]
    assert (proc, place, tree) == (3, 4, 5)
