"""Read a sandbox from outside, through /proc, before its program starts.

/proc/PID is opened once. That descriptor never shows another process, and the process must be in the namespaces that
bubblewrap named.
"""

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self

from palyra.errors import Failed
from palyra.sandbox.domain.facts import Identity
from palyra.sandbox.domain.network import NetworkSeen
from palyra.sandbox.domain.plan import BubblewrapPlan
from palyra.sandbox.domain.profile import ReceiptLine
from palyra.sandbox.layers.workspace_scan import NO_LINKS
from palyra.sandbox.verify.evidence import (
    NAMESPACES,
    Evidence,
    MountSeen,
    parse_limits,
    parse_mounts,
    parse_status,
    rlimits_line,
)
from palyra.workspace.root import hold, openat2

# _IO(0xb7, 1): the user namespace that owns a namespace; _IO(0xb7, 2): the namespace around this one.
_NS_GET_USERNS: Final = 0xB701
_NS_GET_PARENT: Final = 0xB702
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024


class NotBuilt(Failed):
    """bubblewrap ended, or stayed silent, before its sandbox could be read. Its standard error has the reason."""

    code = "sandbox.not_built"
    hint = "`palyra doctor` shows which layer this machine does not give"


class Readback:
    """Holds /proc/PID of a waiting sandbox's first process open."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.pid = int(info["child-pid"])
        try:
            self._proc = os.open(f"/proc/{self.pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise NotBuilt("the sandbox ended before it was looked at") from error
        try:
            self._named_network = info.get("net-namespace")
            named = info.get("mnt-namespace")
            if named is not None and self._namespace("mnt") != named:
                raise NotBuilt("the process that bubblewrap named is not in the namespaces that it named")
        except OSError as error:
            self.close()
            raise NotBuilt("the sandbox ended before it was looked at") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._proc >= 0:
            os.close(self._proc)
            self._proc = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def network(self) -> Iterator[tuple[int, int]]:
        """Open descriptors of the sandbox's network and of the user namespace that owns it.

        bubblewrap goes on into a second user namespace, which has no power over the network: the first one has. Both
        are reached through the open directory, so they are this sandbox's also if its number was used again.
        """
        with ExitStack() as opened:
            try:
                network = opened.enter_context(hold(os.open("ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)))
                owner = opened.enter_context(hold(fcntl.ioctl(network, _NS_GET_USERNS)))
            except OSError as error:
                raise NotBuilt(f"the sandbox's network could not be reached: {error.strerror}") from error
            number, own = os.fstat(network).st_ino, own_namespaces()
            if number == own["net"] or os.fstat(owner).st_ino == own["user"]:
                raise NotBuilt("the sandbox has no network of its own")
            if self._named_network not in (None, number):
                raise NotBuilt("the sandbox is not in the network that bubblewrap named")
            yield network, owner

    def routes(self) -> tuple[str, ...]:
        """List the routes that leave the sandbox's network: IPv4 beside its loopback's, and IPv6 over any other."""
        four = [line.split() for line in self._read("net/route").decode("ascii", "replace").splitlines()[1:]]
        try:
            six = [line.split() for line in self._read("net/ipv6_route").decode("ascii", "replace").splitlines()]
        except FileNotFoundError:
            six = []
        return (
            *(f"{fields[1]} over {fields[0]}" for fields in four),
            *(f"{fields[0]} over {fields[-1]}" for fields in six if fields[-1] != "lo"),
        )

    def evidence(self, plan: BubblewrapPlan, network: NetworkSeen | None = None) -> Evidence:
        try:
            return self._evidence(plan, network)
        except (OSError, ValueError) as error:
            raise NotBuilt(f"the sandbox could not be looked at: {error}") from error

    def _evidence(self, plan: BubblewrapPlan, network: NetworkSeen | None) -> Evidence:
        # The command may have spaces and brackets; the fields after its last bracket are plain.
        fields = self._read("stat").rpartition(b")")[2].split()
        interfaces = [line.partition(b":")[0].strip() for line in self._read("net/dev").splitlines()[2:]]
        status = parse_status(self._read("status").decode("utf-8", "replace"))
        return Evidence(
            pid=self.pid,
            status=status,
            namespaces={name: self._namespace(name) for name in NAMESPACES},
            own_namespaces=own_namespaces(),
            outer_users=self._outer_users(),
            mounts=parse_mounts(self._mount_table()),
            builder_mounts=self._builder_mounts(self._builder(status)),
            identities=self._identities([each.path for each in plan.expected if each.identity is not None]),
            interfaces=tuple(name.decode("ascii", "replace") for name in interfaces),
            terminal=int(fields[4]),
            environment_bytes=len(self._environment(status)),
            network=network,
        )

    def _environment(self, status: dict[str, str]) -> bytes:
        return self._read("environ")

    def _builder(self, status: dict[str, str]) -> int:
        """Return the bubblewrap process that made the sandbox and stays outside."""
        return int(status["PPid"])

    def _mount_table(self) -> bytes:
        return self._read("mountinfo")

    def _builder_mounts(self, pid: int) -> tuple[MountSeen, ...] | None:
        """Return the writable mounts of the process that made the sandbox, or None if they are this process's own."""
        with hold(os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as proc:
            if namespace_number(os.readlink("ns/mnt", dir_fd=proc)) == own_namespaces()["mnt"]:
                return None
            return parse_mounts(_read(proc, "mountinfo"), only_writable=True)

    def limit_processes(self, plan: BubblewrapPlan) -> ReceiptLine:
        """Set how many processes the sandbox may have, and read back every resource limit.

        In the sandbox's own user namespace the kernel counts that namespace's processes alone. So this limits the
        whole tree without a cgroup, except for the host's root user.
        """
        count = plan.profile.limits.pids
        try:
            resource.prlimit(self.pid, resource.RLIMIT_NPROC, (count, count))
            seen = parse_limits(self._read("limits").decode("ascii", "replace"))
        except OSError as error:
            raise NotBuilt(f"the number of processes could not be limited: {error.strerror}") from error
        return rlimits_line(plan, seen, uid=plan.facts.host.uid)

    def _read(self, name: str) -> bytes:
        return _read(self._proc, name)

    def _namespace(self, name: str) -> int:
        return namespace_number(os.readlink(f"ns/{name}", dir_fd=self._proc))

    def _outer_users(self) -> tuple[int, ...]:
        """List the user namespaces around the sandbox's own. This process's own is the last that it may see."""
        outer: list[int] = []
        here = os.open("ns/user", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        while True:
            with hold(here):
                try:
                    here = fcntl.ioctl(here, _NS_GET_PARENT)
                except OSError:
                    break
            outer.append(os.fstat(here).st_ino)
        return tuple(outer)

    def _identities(self, paths: list[bytes]) -> dict[bytes, Identity | None]:
        """Return what the sandbox will find at its own paths, resolved in its own root and past no link."""
        found: dict[bytes, Identity | None] = {}
        with hold(os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)) as root:
            for path in paths:
                try:
                    with hold(openat2(root, path.lstrip(b"/"), os.O_PATH | os.O_NOFOLLOW, resolve=NO_LINKS)) as opened:
                        status = os.fstat(opened)
                except OSError:
                    found[path] = None
                else:
                    found[path] = Identity(status.st_dev, status.st_ino)
        return found


def _read(proc: int, name: str) -> bytes:
    with hold(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)) as file:
        return read_all(file)


def read_all(file: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(file, 65_536):
        parts.append(part)
        if len(parts) * 65_536 > _MAX_FILE_BYTES:
            raise ValueError("a file of a process is too long")
    return b"".join(parts)


@lru_cache(maxsize=1)
def own_namespaces() -> dict[str, int]:
    """Return the namespaces of this process, which never leaves them."""
    return {name: namespace_number(os.readlink(f"/proc/self/ns/{name}")) for name in NAMESPACES}


def namespace_number(link: str) -> int:
    """Return 4026531840 of ``mnt:[4026531840]``."""
    return int(link.partition("[")[2].rstrip("]"))
