"""The steps that hold the host read-only, in order. tests/security/test_mount_race_attacks shows that they do."""

import struct
from typing import Any

import pytest

from fakes.start_plan import decoded, plan, text_at
from palyra.sandbox.domain.launch_spec import CgroupEntry, LaunchSpec, LaunchStage, ReadOnlyHost, RootKind, RootPart
from palyra.sandbox.launch.plan_segment import Segment, hold_read_only
from palyra.sandbox.layers.syscall_table import SYSCALLS

RECURSIVE = 0x8000
EMPTY_PATH = 0x1000
READ_ONLY = 1


def steps(host: ReadOnlyHost) -> list[tuple[str, str]]:
    made = Segment(SYSCALLS["x86_64"])
    hold_read_only(made, host, (20, 21, 22))
    assert {step.stage for step in made.steps} == {LaunchStage.MOUNTS}
    return [(step.call, step.subject) for step in made.steps]


def part(kind: RootKind, path: bytes, **more: Any) -> RootPart:
    return RootPart(path=path, kind=kind, reason="a test", **more)


def test_an_administrator_needs_no_user_namespace() -> None:
    assert steps(ReadOnlyHost(workspace=b"/w")) == [
        ("unshare", ""),
        ("mount_setattr", "/"),
        ("open_tree", "/proc"),
        ("openat", "/w"),
        ("open_tree", "/w"),
        ("close", ""),
        ("mount_setattr", "/w"),
        ("mount_setattr", "/"),
        ("mount", "a root"),
        ("chdir", ""),
        ("mkdirat", "proc"),
        ("mkdirat", "tmp"),
        ("mkdirat", "new"),
        ("mkdirat", "new"),
        ("mkdirat", "new/w"),
        ("move_mount", "/w"),
        ("close", ""),
        ("move_mount", "/proc"),
        ("close", ""),
        ("pivot_root", ""),
        ("umount2", ""),
        ("mount_setattr", "a root"),
    ]


def test_an_ordinary_user_maps_itself_before_anything_is_mounted() -> None:
    made = steps(ReadOnlyHost(workspace=b"/w", ids=(7, 8)))
    assert made[:3] == [("unshare", ""), ("prctl", ""), ("openat", "/proc/self/setgroups")]
    assert made[11] == ("mount_setattr", "/")
    assert [subject for call, subject in made if call == "write"] == [
        "/proc/self/setgroups",
        "/proc/self/uid_map",
        "/proc/self/gid_map",
    ]


@pytest.mark.parametrize("writable", [True, False])
def test_a_read_only_call_leaves_only_proc_writable(writable: bool) -> None:
    spec = LaunchSpec(argv=(b"/bin/true",), read_only_host=ReadOnlyHost(workspace=b"/w", writable=writable))
    made = plan(spec)
    set_on_workspace = next(
        struct.unpack_from("<4Q", made.encoded, arguments[3])
        for (name, arguments, _), step in zip(decoded(made.encoded), made.steps, strict=True)
        if name == "mount_setattr" and step.subject == "/w"
    )
    assert bool(set_on_workspace[0] & READ_ONLY) is not writable


def test_the_parts_of_the_root_are_made_in_its_own_file_system_before_anything_hides_it() -> None:
    parts = (
        part(RootKind.MOUNTED_DIRECTORY, b"/usr"),
        part(RootKind.LINK, b"/bin", content=b"usr/bin"),
        part(RootKind.FILE, b"/etc/passwd", content=b"x"),
        part(RootKind.FILE, b"/etc/palyra/a", descriptor=18, size=3),
        part(RootKind.MOUNTED_FILE, b"/etc/magic"),
        part(RootKind.DEVICE, b"/dev/null"),
        part(RootKind.TERMINALS, b"/dev/pts"),
        part(RootKind.MOUNTED_DIRECTORY, b"/tmp/tools", beside=True),
    )
    made = steps(ReadOnlyHost(workspace=b"/tmp/w", beside=True, parts=parts))
    body = made[made.index(("mkdirat", "new")) + 1 : made.index(("move_mount", "/tmp/w"))]
    assert [step for step in body if step[0] not in ("close", "mkdirat")] == [
        ("symlinkat", ""),
        ("symlinkat", ""),
        ("symlinkat", ""),
        ("symlinkat", "/bin"),
        ("openat", "/etc/passwd"),
        ("write", "/etc/passwd"),
        ("openat", "/etc/palyra/a"),
        ("sendfile", "/etc/palyra/a"),
        ("mount", "terminals"),
        ("open_tree", "/usr"),
        ("move_mount", "/usr"),
        ("mknodat", "/etc/magic"),
        ("open_tree", "/etc/magic"),
        ("move_mount", "/etc/magic"),
        ("mknodat", "/dev/null"),
        ("open_tree", "/dev/null"),
        # Devices alone may be used as such.
        ("mount_setattr", "/dev/null"),
        ("move_mount", "/dev/null"),
        ("open_tree", "/tmp/tools"),
        ("move_mount", "/tmp/tools"),
    ]
    assert ("mkdirat", "beside/tmp/tools") in body
    assert ("mkdirat", "beside/tmp/w") in body


def test_protected_names_are_mounted_on_themselves_and_nothing_is_made() -> None:
    mounted = ((b"/w/.git", False), (b"/w/.git/config", True))
    made = steps(ReadOnlyHost(workspace=b"/w", mounted=mounted))
    assert [step for step in made if step[1].startswith("/w/")] == [
        ("openat", "/w/.git"),
        ("open_tree", "/w/.git"),
        ("move_mount", "/w/.git"),
        ("openat", "/w/.git/config"),
        ("open_tree", "/w/.git/config"),
        ("mount_setattr", "/w/.git/config"),
        ("move_mount", "/w/.git/config"),
    ]
    # After the host is gone: a link on the way leads to nothing of it.
    assert made.index(("umount2", "")) < made.index(("openat", "/w/.git"))
    spec = LaunchSpec(argv=(b"/bin/true",), read_only_host=ReadOnlyHost(workspace=b"/w", mounted=mounted))
    flags = [arguments[2] for name, arguments, _ in decoded(plan(spec).encoded) if name == "openat"]
    assert flags and not any(flag & 0o100 for flag in flags), "no O_CREAT"


def test_in_a_plan_it_comes_after_the_control_groups_and_only_a_directory_may_be_there_already() -> None:
    host = ReadOnlyHost(workspace=b"/home/a b", ids=(1000, 1001))
    spec = LaunchSpec(argv=(b"/bin/true",), cgroup=CgroupEntry(v1=("/cg",)), read_only_host=host, pass_fds=(16, 17))
    made = plan(spec)
    stages = list(dict.fromkeys(step.stage for step in made.steps))
    assert stages[1:5] == [
        LaunchStage.CGROUP,
        LaunchStage.SESSION,
        LaunchStage.MOUNTS,
        LaunchStage.WORKING_DIRECTORY,
    ]
    records = decoded(made.encoded)
    assert {name for name, _, control in records if control} == {"mkdirat"}
    written = [made.encoded[at : at + size] for name, (_, at, size, *_), _ in records if name == "write"]
    assert written == [b"0", b"deny", b"0 1000 1", b"0 1001 1"]
    settings = [
        (flags, struct.unpack_from("<4Q", made.encoded, at))
        for name, (_, _, flags, at, _, _), _ in records
        if name == "mount_setattr"
    ]
    ordinary = 2 | 4
    assert settings == [
        (RECURSIVE, (0, 0, 1 << 18, 0)),
        (RECURSIVE | EMPTY_PATH, (ordinary, 0, 0, 0)),
        (RECURSIVE, (READ_ONLY | ordinary, 0, 0, 0)),
        (0, (READ_ONLY, 0, 0, 0)),
    ]
    places = [text_at(made.encoded, at) for name, (_, at, *_), _ in records if name in ("openat", "open_tree")]
    assert places[-3:] == [b"/proc", b"/home/a b", b""]
    # The lowest free numbers, each used for what was opened under it.
    (tree, *_), (proc, *_) = [arguments for name, arguments, _ in records if name == "move_mount"]
    assert (proc, tree) == (3, 5)
