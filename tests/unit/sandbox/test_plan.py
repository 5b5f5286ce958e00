"""The plan as a value: what it says to bubblewrap, in which order, and what it refuses."""

import msgspec
import pytest

from fakes.isolation_plan import HOST, MOUNTS, OPTIONS, facts, plan
from palyra.sandbox.domain.facts import Facts, HostHold, Identity, WorkspaceFacts
from palyra.sandbox.domain.launch_spec import RootKind, build_tier_c_rlimits
from palyra.sandbox.domain.plan import (
    ARGS_FD,
    ETC_REASONS,
    BubblewrapPlan,
    build_environment,
    make_identity_files,
    plan_isolated,
)
from palyra.sandbox.domain.profile import (
    BadProfile,
    EgressEnforcementMode,
    SandboxLimits,
    SandboxProfile,
    UnsupportedPlatform,
)


def said(made: BubblewrapPlan) -> list[str]:
    return [b" ".join(line.arguments).decode() for line in made.lines]


def sandbox_of(made: BubblewrapPlan) -> object:
    return made.data_fds, made.parts, made.expected


SNAPSHOT = """\
--unshare-user
--unshare-pid
--unshare-net
--unshare-ipc
--unshare-uts
--unshare-cgroup-try
--uid 1234
--gid 1235
--disable-userns
--cap-drop ALL
--hostname sandbox
--new-session
--die-with-parent
--ro-bind /usr /usr
--symlink usr/bin /bin
--symlink usr/lib /lib
--ro-bind /lib64 /lib64
--perms 0444
--file 11 /etc/passwd
--perms 0444
--file 12 /etc/group
--perms 0444
--file 13 /etc/nsswitch.conf
--perms 0444
--file 14 /etc/resolv.conf
--perms 0444
--file 15 /etc/hosts
--symlink /usr/share/zoneinfo/UTC /etc/localtime
--ro-bind /etc/ld.so.cache /etc/ld.so.cache
--symlink ../tmp /var/tmp
--symlink ../run /var/run
--proc /proc
--dev /dev
--perms 1777
--size 67108864
--tmpfs /dev/shm
--perms 1777
--size 536870912
--tmpfs /tmp
--perms 0755
--size 16777216
--tmpfs /run
--perms 0700
--size 536870912
--tmpfs /home/sandbox
--bind /home/a/work /home/a/work
--bind /home/a/work/.git /home/a/work/.git
--ro-bind /home/a/work/.git/hooks /home/a/work/.git/hooks
--remount-ro /proc
--remount-ro /dev
--remount-ro /
--clearenv
--setenv HOME /home/sandbox
--setenv LANG C.UTF-8
--setenv LOGNAME sandbox
--setenv PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
--setenv TERM dumb
--setenv TMPDIR /tmp
--setenv USER sandbox
--chdir /home/a/work
--seccomp 10
--info-fd 16
--block-fd 17"""


def test_the_whole_plan_as_it_is_shipped() -> None:
    made = plan()
    assert "\n".join(said(made)) == SNAPSHOT
    assert made.argv == (b"/usr/bin/bwrap", b"--args", b"9", b"--", b"ls", b"-la")
    assert dict(made.data_fds)[ARGS_FD].split(b"\0")[:3] == [b"--unshare-user", b"--unshare-pid", b"--unshare-net"]
    assert made.pass_fds == (16, 17)


HELD = msgspec.structs.replace(HOST, hold=HostHold.MOUNT_NAMESPACE, etc_files=frozenset({"/etc/ld.so.cache"}))
# Between the namespaces and the environment, which are the same.
HELD_MOUNTS = """\
--dev-bind /new /
--proc /proc
--perms 1777
--size 67108864
--tmpfs /dev/shm
--perms 1777
--size 536870912
--tmpfs /tmp
--perms 0755
--size 16777216
--tmpfs /run
--perms 0700
--size 536870912
--tmpfs /home/sandbox
--remount-ro /proc"""
HELD_PARTS = """\
directory /proc
directory /dev/shm
directory /tmp
directory /run
directory /home/sandbox
device /dev/null
device /dev/zero
device /dev/full
device /dev/random
device /dev/urandom
device /dev/tty
terminals /dev/pts
link /dev/core /proc/kcore
link /dev/fd /proc/self/fd
link /dev/ptmx pts/ptmx
link /dev/stderr /proc/self/fd/2
link /dev/stdin /proc/self/fd/0
link /dev/stdout /proc/self/fd/1
mounted_directory /usr
link /bin usr/bin
link /lib usr/lib
mounted_directory /lib64
file /etc/passwd
file /etc/group
file /etc/nsswitch.conf
file /etc/resolv.conf
file /etc/hosts
link /etc/localtime /usr/share/zoneinfo/UTC
mounted_file /etc/ld.so.cache
link /var/tmp ../tmp
link /var/run ../run"""


def test_where_the_host_is_held_the_root_is_made_before_and_taken_with_one_bind() -> None:
    made = plan(HELD)
    lines = said(made)
    assert "\n".join(lines[lines.index("--dev-bind /new /") : lines.index("--clearenv")]) == HELD_MOUNTS
    made_parts = [
        f"{part.kind} {part.path.decode()}" + (f" {part.content.decode()}" if part.kind is RootKind.LINK else "")
        for part in made.parts
    ]
    assert "\n".join(made_parts) == HELD_PARTS
    assert {number for number, _ in made.data_fds} == {ARGS_FD, 10}


def test_what_must_be_seen_is_the_same_whoever_made_the_root() -> None:
    by_bubblewrap = {(each.path, each.read_only) for each in plan().expected}
    before = {(each.path, each.read_only) for each in plan(HELD).expected}
    # There /dev is a mount with the devices in it; here each device is one in a root that is read-only itself.
    assert by_bubblewrap - before == {(b"/dev", True)}
    assert all(path.startswith(b"/dev/") for path, _ in before - by_bubblewrap)


@pytest.mark.parametrize("place", ["/tmp/a/work", "/run/work", "/home/sandbox/work"])
def test_a_workspace_that_something_new_would_hide_lies_beside_the_root(place: str) -> None:
    workspace = WorkspaceFacts(root=place.encode(), identity=Identity(1, 2), mounts=MOUNTS)
    profile = SandboxProfile(workspace_root=place, tool_roots=("/tmp/tools", "/opt/tools"))
    made = plan_isolated(profile, (b"ls",), Facts(host=HELD, workspace=workspace, seccomp=None))
    binds = [line for line in said(made) if "bind" in line]
    assert binds == ["--dev-bind /new /", "--ro-bind /beside/tmp/tools /tmp/tools", f"--bind /beside{place} {place}"]
    assert [part.place for part in made.parts if b"tools" in part.path] == [b"/beside/tmp/tools", b"/new/opt/tools"]


def test_equal_roots_are_equal_sandboxes_when_they_are_made_before_too() -> None:
    assert sandbox_of(plan(HELD)) == sandbox_of(plan(HELD))
    assert sandbox_of(plan(HELD)) != sandbox_of(plan(msgspec.structs.replace(HELD, root_links=())))


def test_every_line_has_a_reason() -> None:
    assert all(line.reason for made in (plan(), plan(HELD)) for line in (*made.lines, *made.parts))


def test_root_is_an_ordinary_user_inside() -> None:
    made = plan(msgspec.structs.replace(HOST, uid=0, gid=0))
    assert "--uid 1000" in said(made)
    assert b"sandbox:x:1000:1000:" in dict(made.data_fds)[11]


def test_the_network_is_shared_unless_egress_is_strict() -> None:
    for mode in (EgressEnforcementMode.NONE, EgressEnforcementMode.PREFLIGHT):
        made = plan(egress=mode)
        assert "--unshare-net" not in said(made)
        assert dict(made.data_fds)[14] == HOST.resolv_conf
        assert b"192.0.2.1 db" in dict(made.data_fds)[15]
    strict = plan()
    assert dict(strict.data_fds)[14] == b"nameserver 127.0.0.1\noptions no-aaaa\n"
    assert b"192.0.2" not in dict(strict.data_fds)[15]


def test_extra_files_lie_on_the_read_only_root() -> None:
    made = plan(extra_files=(("/etc/palyra/a", b"one"), ("/etc/palyra/b", b"two")))
    lines = said(made)
    assert lines.index("--file 19 /etc/palyra/b") < lines.index("--remount-ro /")
    assert lines[lines.index("--file 18 /etc/palyra/a") - 1] == "--perms 0444"
    assert (dict(made.data_fds)[18], dict(made.data_fds)[19]) == (b"one", b"two")
    assert sandbox_of(made) != sandbox_of(plan())


def test_a_read_only_workspace_needs_no_protection() -> None:
    lines = said(plan(read_only=True))
    assert "--ro-bind /home/a/work /home/a/work" in lines
    assert not any(".git" in line for line in lines)


def test_tool_roots_are_read_only_and_come_first_in_the_path() -> None:
    made = plan(tool_roots=("/opt/tools",))
    assert "--ro-bind /opt/tools /opt/tools" in said(made)
    assert dict(build_environment(made.profile))["PATH"].startswith("/opt/tools/bin:/usr/local/sbin")


def test_environment_goes_to_the_program_by_descriptor_and_to_nothing_else() -> None:
    made = plan(env=(("TOKEN", "hidden"), ("LANG", "de_DE")))
    assert not any(b"hidden" in word for word in made.argv)
    assert b"--setenv\0TOKEN\0hidden\0" in dict(made.data_fds)[ARGS_FD]
    assert dict(made.environment)["LANG"] == "de_DE"


@pytest.mark.parametrize("root", ["/usr", "/etc", "/tmp", "/home", "/proc/self", "/dev/shm/x", "/sys/fs"])
def test_a_workspace_that_is_the_system_is_refused(root: str) -> None:
    with pytest.raises(BadProfile, match=f"{root} cannot be a workspace") as refused:
        plan_isolated(SandboxProfile(workspace_root=root), (b"ls",), facts())
    assert "holds /tmp" not in refused.value.message and "the folder of a project" in refused.value.hint
    with pytest.raises(BadProfile, match=f"{root} cannot be a tool root") as refused:
        plan_isolated(SandboxProfile(workspace_root="/srv/x", tool_roots=(root,)), (b"ls",), facts())
    assert "--workspace" not in refused.value.hint


@pytest.mark.parametrize("root", ["/usr/src/app", "/tmp/x", "/home/a", "/srv/x", "/root", "/run/x"])
def test_a_workspace_beneath_the_system_is_not(root: str) -> None:
    plan_isolated(SandboxProfile(workspace_root=root), (b"ls",), facts())


def test_a_command_is_words_without_nul() -> None:
    for argv in ((), (b"a\0b",)):
        with pytest.raises(BadProfile):
            plan_isolated(SandboxProfile(workspace_root="/w"), argv, facts())


def test_a_bubblewrap_without_an_option_is_refused_by_layer() -> None:
    old = msgspec.structs.replace(HOST, bwrap_options=OPTIONS - {"--disable-userns", "--size"})
    with pytest.raises(UnsupportedPlatform) as refused:
        plan(old)
    assert refused.value.details["layers"] == ["nested_userns_off", "minimal_root"]


def test_equal_profiles_give_equal_sandboxes_whatever_they_run() -> None:
    other = plan_isolated(SandboxProfile(workspace_root="/home/a/work"), (b"other",), facts())
    assert sandbox_of(plan()) == sandbox_of(other)
    assert sandbox_of(plan()) != sandbox_of(plan(read_only=True))


def test_address_space_is_limited_only_without_a_cgroup() -> None:
    with_space = {limit.name for limit in build_tier_c_rlimits(SandboxLimits(), memory_is_counted=False)}
    assert with_space - {limit.name for limit in build_tier_c_rlimits(SandboxLimits(), memory_is_counted=True)} == {
        "AS"
    }


def test_only_public_parts_of_etc_are_ever_mounted() -> None:
    for path in ETC_REASONS:
        assert path.startswith("/etc/")
        assert not any(word in path for word in ("shadow", "private", "sudo", "ssh", "kube", "docker"))
    assert "/etc/ssl" not in ETC_REASONS


@pytest.mark.parametrize(("uid", "accounts"), [(0, 3), (1000, 3), (65534, 2)])
def test_accounts_are_root_the_user_and_nobody_each_once(uid: int, accounts: int) -> None:
    files = make_identity_files(msgspec.structs.replace(HOST, uid=uid, gid=uid), strict=True)
    lines = files[11].decode().splitlines()
    assert len(lines) == len({line.split(":")[2] for line in lines}) == accounts
    assert all(line.count(":") == 6 for line in lines)
    assert all(line.count(":") == 3 for line in files[12].decode().splitlines())
