"""Attacks from inside a Tier C sandbox, performed with real bubblewrap.

The filter of system calls allows everything here: what these attacks meet are the namespaces, the mounts and the lost
capabilities alone. Run as a program (``test_isolation_attacks.py DIR``) it performs all of them as an ordinary user.
"""

import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.isolated import Ran, planned, profile_of, run, run_plan, shell
from palyra.errors import PalyraError
from palyra.sandbox.domain.profile import (
    EgressEnforcementMode,
    Layer,
    NewProtectedPolicy,
    SandboxLimits,
    UnsupportedPlatform,
)
from palyra.sandbox.layers.protected_mounts import gather_workspace
from palyra.sandbox.layers.seccomp import build_tier_c_filter
from palyra.sandbox.verify.protected_changes import look_again

pytestmark = pytest.mark.promise("P-sandbox-holds")

NOBODY = 65534
SECRET = "do-not-leak-0f3c"

# Each attempt prints ESCAPED when it succeeds; the last line proves that the script came to its end.
PRELUDE = """
import ctypes, errno, os, socket, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    try:
        result = action()
    except BaseException as error:
        print("blocked", name, type(error).__name__, error)
    else:
        print("ESCAPED", name, repr(result)[:200])
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return result
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
"""


class Harness:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.workspace = base / "workspace"
        self.outside = base / "outside"
        self.workspace.mkdir()
        self.outside.mkdir()
        (self.outside / "secret").write_text(SECRET)
        hooks = self.workspace / ".git" / "hooks"
        hooks.mkdir(parents=True)
        (hooks / "pre-commit").write_text("#!/bin/sh\n")
        (self.workspace / ".git" / "config").write_text("[core]\n")
        (self.workspace / ".env").write_text("KEY=1\n")
        deep = self.workspace / "deep" / "er" / ".github" / "workflows"
        deep.mkdir(parents=True)
        (deep / "ci.yml").write_text("on: push\n")

    def attack(self, script: str, **changes: object) -> Ran:
        text = PRELUDE + textwrap.dedent(script) + '\nprint("finished")\n'
        ran = run(profile_of(self.workspace, **changes), ["/usr/bin/python3", "-I", "-c", text])
        assert "finished" in ran.out, ran
        assert "ESCAPED" not in ran.out, ran.out
        assert SECRET not in ran.out + ran.err
        return ran


def attack_outside_files(harness: Harness) -> None:
    home = Path.home()
    (harness.workspace / "link").symlink_to(harness.outside)
    (harness.workspace / "chain").symlink_to("link/secret")
    harness.attack(
        f"""
        for path in ({str(harness.outside / "secret")!r}, "link/secret", "chain", "/etc/shadow", "/etc/sudoers",
                     "/etc/ssl/private", "/root", "/proc/1/root/etc/shadow", "/sys/kernel", "/boot", "/var/lib",
                     "/var/log", "/run/user", "/var/run/docker.sock", {str(home / ".ssh")!r}, "/proc/kcore"):
            attempt("read " + path, lambda: os.listdir(path) if os.path.isdir(path) else open(path).read(10))
        for path in ({str(harness.outside / "new")!r}, "link/new", "/usr/bin/new", "/etc/new", "/new", "/home/new",
                     "/usr/local/bin/ls", "/dev/new", "/proc/new"):
            attempt("write " + path, lambda: write(path, "x"))
        """
    )
    assert sorted(os.listdir(harness.outside)) == ["secret"]
    assert not Path("/usr/bin/new").exists()


def attack_protected_names(harness: Harness) -> None:
    ran = harness.attack(
        """
        attempt("write hook", lambda: write(".git/hooks/pre-commit", "evil"))
        attempt("new hook", lambda: write(".git/hooks/post-commit", "evil"))
        attempt("write env", lambda: write(".env", "evil"))
        attempt("write deep", lambda: write("deep/er/.github/workflows/ci.yml", "evil"))
        for path in (".git", ".git/hooks", ".env", "deep", "deep/er", "deep/er/.github",
                     "deep/er/.github/workflows", os.getcwd()):
            attempt("rename " + path, lambda: os.rename(path, path + ".old"))
            attempt("swap " + path, lambda: call(316, -100, path.encode(), -100, b"other", 2))
        os.mkdir("other")
        for path in (".git", ".git/hooks", "deep"):
            attempt("rename over " + path, lambda: os.rename("other", path))
        for path in (".env", ".git/hooks/pre-commit"):
            attempt("unlink " + path, lambda: os.unlink(path))
            attempt("hard link " + path, lambda: os.link(path, "alias"))
            attempt("chmod " + path, lambda: os.chmod(path, 0o777))
            attempt("times " + path, lambda: os.utime(path))
        attempt("remove tree", lambda: __import__("shutil").rmtree("deep/er/.github"))
        write("ordinary", "this must work")
        write(".git/index", "this too")
        # A directory above a protected name is a mount of its own: rename(2) says EXDEV, and programs copy.
        __import__("shutil").move("ordinary", "deep/ordinary")
        """
    )
    assert (harness.workspace / ".git/hooks/pre-commit").read_text() == "#!/bin/sh\n"
    assert os.listdir(harness.workspace / ".git/hooks") == ["pre-commit"]
    assert (harness.workspace / ".env").read_text() == "KEY=1\n"
    assert (harness.workspace / "deep/er/.github/workflows/ci.yml").read_text() == "on: push\n"
    assert (harness.workspace / "deep/ordinary").read_text() == "this must work"
    line = ran.receipt.line(Layer.PROTECTED_NAMES)
    assert line is not None
    assert line.held


def attack_mounts(harness: Harness) -> None:
    harness.attack(
        """
        MS_REMOUNT, MS_BIND = 32, 4096
        def mount(source, target, kind, flags):
            if libc.mount(source, target, kind, flags, None) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        for path in (b"/", b"/usr", b"/proc", b"/dev", os.fsencode(os.getcwd() + "/.env"),
                     os.fsencode(os.getcwd() + "/.git/hooks")):
            attempt("remount " + repr(path), lambda: mount(None, path, None, MS_REMOUNT | MS_BIND))
            attempt("unmount " + repr(path), lambda: call(166, path, 2))
            writable = struct.pack("QQQQ", 0, 1, 0, 0)
            attempt("mount_setattr " + repr(path), lambda: call(442, -100, path, 0, writable, 32))
        attempt("tmpfs", lambda: mount(b"x", b"/tmp", b"tmpfs", 0))
        attempt("bind", lambda: mount(b"/", b"/tmp", None, MS_BIND))
        attempt("proc", lambda: mount(b"proc", b"/tmp", b"proc", 0))
        attempt("open_tree", lambda: call(428, -100, b"/", 1))
        attempt("fsopen", lambda: call(430, b"tmpfs", 0))
        attempt("pivot_root", lambda: call(155, b".", b"."))
        attempt("chroot", lambda: os.chroot("."))
        """
    )


def attack_namespaces(harness: Harness) -> None:
    harness.attack(
        """
        for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("net", 0x40000000), ("pid", 0x20000000),
                           ("user and mount", 0x10020000), ("time", 0x80), ("cgroup", 0x2000000)):
            attempt("unshare " + name, lambda: call(272, flag))
        attempt("setns", lambda: call(308, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0))
        attempt("hostname", lambda: socket.sethostname("evil"))
        attempt("setuid", lambda: os.setuid(0))
        attempt("setgroups", lambda: os.setgroups([0]))
        attempt("chown", lambda: (write("mine", ""), os.chown("mine", 0, 0)))
        attempt("mknod", lambda: os.mknod("disk", 0o60600, os.makedev(8, 0)))
        attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
        attempt("clock", lambda: __import__("time").clock_settime(0, 1))
        attempt("raise a limit", lambda: __import__("resource").setrlimit(7, (1 << 20, 1 << 20)))
        """
    )


def attack_kernel_files(harness: Harness) -> None:
    """Root outside is root for /proc/sys even without capabilities: only the read-only mount holds there."""
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    harness.attack(
        """
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sys/kernel/hostname",
                     "/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger", "/proc/self/uid_map",
                     "/proc/1/oom_score_adj", "/proc/irq/0/smp_affinity", "/proc/bus/pci/devices"):
            attempt("write " + path, lambda: os.close(os.open(path, os.O_WRONLY)))
        for path in ("/sys/fs/cgroup", "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/security", "/dev/mem", "/dev/kmsg",
                     "/dev/kvm", "/dev/vda", "/dev/fuse", "/dev/net/tun", "/dev/loop-control"):
            attempt("open " + path, lambda: os.open(path, os.O_RDONLY))
        """
    )
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


def attack_processes(harness: Harness) -> None:
    victim = subprocess.Popen(["/bin/sleep", "60"], stdout=subprocess.DEVNULL)
    try:
        harness.attack(
            f"""
            shown = [name for name in os.listdir("/proc") if name.isdigit()]
            if len(shown) > 3:
                print("ESCAPED sees", shown)
            for pid in ({victim.pid}, {os.getpid()}):
                attempt("look", lambda: os.listdir(f"/proc/{{pid}}"))
                attempt("signal", lambda: os.kill(pid, 9))
                attempt("pidfd", lambda: call(434, pid, 0))
            # Everything that may be signalled, which is nothing but the sandbox's own first process.
            attempt("signal all", lambda: os.kill(-1, 9))
            environment = open("/proc/1/environ", "rb").read()
            if environment:
                print("ESCAPED environment of the launcher", environment)
            """
        )
        assert victim.poll() is None
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()


def attack_sockets(harness: Harness) -> None:
    name = f"\0palyra-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as tcp, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(name)
        abstract.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        named.bind(str(harness.outside / "socket"))
        named.listen()
        port = tcp.getsockname()[1]
        harness.attack(
            f"""
            def connect(family, address):
                with socket.socket(family) as client:
                    client.settimeout(2)
                    client.connect(address)
            attempt("abstract", lambda: connect(socket.AF_UNIX, {name!r}))
            attempt("named", lambda: connect(socket.AF_UNIX, {str(harness.outside / "socket")!r}))
            attempt("tcp", lambda: connect(socket.AF_INET, ("127.0.0.1", {port})))
            attempt("route", lambda: connect(socket.AF_INET, ("192.0.2.1", 9)))
            attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
            """
        )
    os.unlink(harness.outside / "socket")


def attack_descriptors_and_environment(harness: Harness) -> None:
    leaked = os.open(harness.outside / "secret", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    os.environ["PALYRA_TEST_SECRET"] = SECRET
    try:
        ran = harness.attack(
            """
            here = {int(name) for name in os.listdir("/proc/self/fd")}
            others = [number for number in here if number > 2 and os.path.exists(f"/proc/self/fd/{number}")]
            if others:
                print("ESCAPED descriptors", [os.readlink(f"/proc/self/fd/{number}") for number in others])
            for pid in (name for name in os.listdir("/proc") if name.isdigit()):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    place = f"/proc/{pid}/fd/{number}"
                    target = os.readlink(place) if os.path.lexists(place) else ""
                    if "secret" in target or "memfd" in target:
                        print("ESCAPED descriptor of", pid, target)
            print(sorted(os.environ))
            """
        )
    finally:
        os.close(leaked)
        del os.environ["PALYRA_TEST_SECRET"]
    expected = ["HOME", "LANG", "LC_CTYPE", "LOGNAME", "PATH", "PWD", "TERM", "TMPDIR", "USER"]
    assert str([name for name in expected if name != "LC_CTYPE"]) in ran.out


def attack_environment_of_bubblewrap(harness: Harness) -> None:
    """A preloaded library would run in bubblewrap, outside: the variable reaches the program only."""
    marker = harness.outside / "marker"
    (harness.workspace / "evil.c").write_text(
        "#include <fcntl.h>\n__attribute__((constructor)) void run(void)"
        f'{{ open("{marker}", O_CREAT | O_WRONLY, 0600); }}\n'
    )
    build = ["cc", "-shared", "-fPIC", "-o", str(harness.workspace / "evil.so"), str(harness.workspace / "evil.c")]
    subprocess.run(build, check=True)
    library = str(harness.workspace / "evil.so")
    ran = shell(profile_of(harness.workspace, env=(("LD_PRELOAD", library),)), "echo $LD_PRELOAD")
    assert ran.out.strip() == library
    assert not marker.exists()


def attack_terminal(harness: Harness) -> None:
    harness.attack(
        """
        import fcntl, termios
        attempt("open the terminal", lambda: os.open("/dev/tty", os.O_RDWR))
        for number in (0, 1, 2):
            attempt("push a character", lambda: fcntl.ioctl(number, termios.TIOCSTI, b"x"))
        """
    )


def attack_read_only_workspace(harness: Harness) -> None:
    harness.attack(
        """
        attempt("write", lambda: write("new", "x"))
        attempt("mkdir", lambda: os.mkdir("new"))
        attempt("rename", lambda: os.rename("deep", "other"))
        """,
        read_only=True,
    )
    assert not (harness.workspace / "new").exists()


def attack_resources(harness: Harness) -> None:
    """The sizes of private places, and for an ordinary user the number of processes without any cgroup."""
    bombs = """
        import time
        children = 0
        try:
            while children < 200:
                if os.fork() == 0:
                    time.sleep(20)
                    os._exit(0)
                children += 1
        except OSError as error:
            print("blocked fork", error)
        else:
            print("ESCAPED fork", children)
    """
    if os.geteuid() != 0:
        harness.attack(bombs, limits=SandboxLimits(pids=20))
    harness.attack(
        """
        def fill(path):
            with open(path, "wb") as file:
                for _ in range(96):
                    file.write(bytes(1 << 20))
        attempt("fill /run", lambda: fill("/run/big"))
        attempt("fill /dev/shm", lambda: fill("/dev/shm/big"))
        """
    )


def attack_mount_points_through_links(harness: Harness) -> None:
    """CVE-2026-87766: plain bubblewrap creates the mount point on the host; our plan gives it none to create."""
    target = harness.outside / "planted"
    (harness.workspace / "trap").symlink_to(f"/oldroot{harness.outside}")
    plain = ["/usr/bin/bwrap", "--unshare-user", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64"]
    plain += ["--symlink", "usr/lib", "/lib", "--bind", str(harness.workspace), str(harness.workspace)]
    plain += ["--dir", str(harness.workspace / "trap" / "planted"), "--", "/usr/bin/true"]
    subprocess.run(plain, capture_output=True, check=False)
    vulnerable = target.exists()
    if vulnerable:
        target.rmdir()
    # The same trap under every protected name, as a parent and as the name itself.
    shutil.rmtree(harness.workspace / ".git")
    (harness.workspace / ".env").unlink()
    (harness.workspace / ".git").symlink_to(f"/oldroot{harness.outside}")
    (harness.workspace / ".env").symlink_to(f"/oldroot{harness.outside}/planted")
    (harness.workspace / ".vscode").symlink_to(f"/oldroot{harness.outside}/planted-too")
    ran = shell(profile_of(harness.workspace), "true")
    assert ran.code == 0
    assert sorted(os.listdir(harness.outside)) == ["secret"]
    links = ran.receipt.line(Layer.PROTECTED_NAMES)
    assert links is not None
    assert "3 links watched" in links.got
    print("plain bubblewrap is vulnerable:", vulnerable)


def attack_swaps_before_the_start(harness: Harness) -> None:
    """What was looked at is not what is mounted: seen before the program may start, which then never does."""
    profile = profile_of(harness.workspace)
    marker = harness.workspace / "ran"
    plan = planned(profile, ["/usr/bin/touch", str(marker)])
    shutil.move(harness.workspace / ".git", harness.workspace / "old")
    shutil.copytree(harness.workspace / "old", harness.workspace / ".git")
    with pytest.raises(UnsupportedPlatform) as refused:
        run_plan(plan)
    assert "not what was looked at" in refused.value.message
    assert not marker.exists()


def attack_keyrings_with_the_filter(harness: Harness) -> None:
    """The session keyring is inherited through every namespace: only the filter keeps the program from it."""
    script = PRELUDE + textwrap.dedent(
        """
        KEYCTL, ADD_KEY, REQUEST_KEY = 250, 248, 249
        attempt("session keyring", lambda: call(KEYCTL, 0, -3, 0))
        attempt("describe", lambda: call(KEYCTL, 6, -3, None, 0))
        attempt("add", lambda: call(ADD_KEY, b"user", b"x", b"y", 1, -3))
        attempt("request", lambda: call(REQUEST_KEY, b"user", b"x", None, -3))
        print("finished")
        """
    )
    # The numbers above are those of x86_64; elsewhere they are other calls.
    assert platform.machine() == "x86_64"
    argv = ["/usr/bin/python3", "-I", "-c", script]
    ran = run_plan(planned(profile_of(harness.workspace), argv, seccomp=build_tier_c_filter(platform.machine())))
    assert "finished" in ran.out, ran.err
    assert "ESCAPED" not in ran.out


def attack_names_that_appear(harness: Harness) -> None:
    odd = b".env.\n\xff*?["
    script = "mkdir -p n/.vscode a/.git/hooks && : > n/.vscode/settings.json && : > a/.git/hooks/x && rm -f .git/index"
    for policy in NewProtectedPolicy:
        profile = profile_of(harness.workspace, appearing_protected=policy)
        _, before = gather_workspace(profile)
        ran = run(profile, ["/usr/bin/python3", "-c", f"open({odd!r}, 'w')"])
        assert ran.code == 0, ran.err
        assert shell(profile, script).code == 0
        aside = Path(tempfile.mkdtemp(dir=harness.base))
        report = look_again(profile, before, aside=str(aside))
        assert [each.names for each in report.changes] == [(odd,), (b"a", b".git", b"hooks"), (b"n", b".vscode")]
        assert "\n" not in report.line().got
        try:
            report.refuse()
        except PalyraError as error:
            assert policy is NewProtectedPolicy.FAIL
            assert error.code == "sandbox.protected_appeared"
        else:
            assert policy is not NewProtectedPolicy.FAIL
        moved = policy is NewProtectedPolicy.MOVE_ASIDE
        assert (harness.workspace / "n/.vscode").exists() is not moved
        assert len(os.listdir(aside)) == (4 if moved else 0)
        for path in (odd, b"n", b"a"):
            full = os.fsencode(harness.workspace) + b"/" + path
            shutil.rmtree(full, ignore_errors=True)
            if os.path.lexists(full):
                os.unlink(full)


def attack_shared_network_modes(harness: Harness) -> None:
    """Without strict egress the network is the host's, and the receipt says so."""
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        script = f"import socket; socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 2); print('reached')"
        profile = profile_of(harness.workspace, egress=EgressEnforcementMode.PREFLIGHT)
        ran = run(profile, ["/usr/bin/python3", "-I", "-c", script])
    assert ran.out == "reached\n"
    line = ran.receipt.line(Layer.NETWORK_NAMESPACE)
    assert line is not None
    assert line.asked == "the host's"


ATTACKS: tuple[Callable[[Harness], None], ...] = (
    attack_outside_files,
    attack_protected_names,
    attack_mounts,
    attack_namespaces,
    attack_kernel_files,
    attack_processes,
    attack_sockets,
    attack_descriptors_and_environment,
    attack_environment_of_bubblewrap,
    attack_terminal,
    attack_read_only_workspace,
    attack_resources,
    attack_mount_points_through_links,
    attack_swaps_before_the_start,
    attack_keyrings_with_the_filter,
    attack_names_that_appear,
    attack_shared_network_modes,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_attack(attack: Callable[[Harness], None], tmp_path: Path) -> None:
    attack(Harness(tmp_path))


def test_attacks_as_an_ordinary_user() -> None:
    base = Path(tempfile.mkdtemp(prefix="palyra-isolation-"))
    try:
        if os.geteuid() == 0:
            os.chown(base, NOBODY, NOBODY)
        paths = [str(Path(__file__).parents[1]), *sys.path]
        ran = subprocess.run(
            [sys.executable, __file__, str(base)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ran.stdout.count("blocked: ") == len(ATTACKS)
    finally:
        shutil.rmtree(base)


def as_ordinary_user(base: Path) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    for attack in ATTACKS:
        place = base / attack.__name__
        place.mkdir()
        attack(Harness(place))
        print("blocked:", attack.__name__)


if __name__ == "__main__":
    as_ordinary_user(Path(sys.argv[1]))
