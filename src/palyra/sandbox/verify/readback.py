"""Looks at a sandbox from outside while it waits for leave to start its program.

bubblewrap names the sandbox's first process on one descriptor when it is made, builds the sandbox, gives up its last
capability, and waits on another descriptor. From the moment without capabilities nothing of the sandbox can change any
more, and everything but the system call filter can be read. /proc/PID is opened once: that descriptor never shows
another process, and what it shows must lie in the namespaces that bubblewrap named.
"""

import asyncio
import fcntl
import json
import os
import re
import resource
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self

from palyra.errors import Failed
from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Identity
from palyra.sandbox.domain.network import NetworkSeen
from palyra.sandbox.domain.plan import BubblewrapPlan
from palyra.sandbox.domain.profile import Layer, Receipt, ReceiptLine, refuse_unmet
from palyra.sandbox.layers.workspace_scan import NO_LINKS
from palyra.sandbox.verify.evidence import (
    FILTER_MODE,
    NAMESPACES,
    Evidence,
    MountSeen,
    filter_line,
    parse_limits,
    parse_mounts,
    parse_status,
    receipt_lines,
    rlimits_line,
)
from palyra.workspace.openat2 import hold, openat2

# _IO(0xb7, 1): the user namespace that owns a namespace; _IO(0xb7, 2): the namespace around this one.
_NS_GET_USERNS: Final = 0xB701
_NS_GET_PARENT: Final = 0xB702
_NO_CAPABILITIES: Final = re.compile(rb"^CapPrm:\t0+$", re.MULTILINE)
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024


class NotBuilt(Failed):
    """bubblewrap ended, or stayed silent, before its sandbox could be looked at. Its standard error says why."""

    code = "sandbox.not_built"
    hint = "`palyra doctor` shows which layer this machine does not give"


class Gate:
    """The two pipes between us and bubblewrap. The program starts at ``release`` and in no other case.

    bubblewrap takes the end of the block pipe for leave to go on, so a crash of ours would start the program unseen.
    The end that it gets is therefore open for both directions: it holds the pipe open itself, and waits until killed.
    ``child_descriptors`` go to the launcher in the order of the plan's ``pass_fds``; ``handed_over`` then closes them
    here, so that the end of bubblewrap is seen as the end of the pipe.
    """

    def __init__(self) -> None:
        # Whether the program may have run.
        self.released = False
        self._info, self._info_child = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._info_child, True)
        reading, self._block = os.pipe2(os.O_CLOEXEC)
        with hold(reading):
            self._block_child = os.open(f"/proc/self/fd/{reading}", os.O_RDWR | os.O_CLOEXEC)

    @property
    def child_descriptors(self) -> tuple[int, int]:
        return self._info_child, self._block_child

    def handed_over(self) -> None:
        self._info_child = _closed(self._info_child)
        self._block_child = _closed(self._block_child)

    def wait(self, seconds: float = limits.READBACK_SECONDS) -> dict[str, Any]:
        """What bubblewrap says about the sandbox; blocks, for threads and tests."""
        deadline = time.monotonic() + seconds
        said = b""
        while True:
            ready, _, _ = select.select([self._info], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise NotBuilt(f"bubblewrap built no sandbox within {seconds:.0f} s")
            said, info = self._more(said)
            if info is not None:
                return info

    async def described(self, seconds: float = limits.READBACK_SECONDS) -> dict[str, Any]:
        """The same on an event loop."""
        loop = asyncio.get_running_loop()
        said = b""
        readable = asyncio.Event()
        loop.add_reader(self._info, readable.set)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await readable.wait()
                    readable.clear()
                    said, info = self._more(said)
                    if info is not None:
                        return info
        except TimeoutError as error:
            raise NotBuilt(f"bubblewrap built no sandbox within {seconds:.0f} s") from error
        finally:
            loop.remove_reader(self._info)

    def _more(self, said: bytes) -> tuple[bytes, dict[str, Any] | None]:
        try:
            part = os.read(self._info, limits.MAX_INFO_BYTES)
        except BlockingIOError:
            return said, None
        said += part
        if said.rstrip().endswith(b"}"):
            return said, dict(json.loads(said))
        if not part or len(said) > limits.MAX_INFO_BYTES:
            raise NotBuilt("bubblewrap ended before the sandbox was built")
        return said, None

    def release(self) -> None:
        """Lets the program start."""
        self.released = True
        os.write(self._block, b"1")
        self._block = _closed(self._block)

    def close(self) -> None:
        self.handed_over()
        self._info = _closed(self._info)
        self._block = _closed(self._block)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        os.close(descriptor)
    return -1


class Waiting:
    """A sandbox that waits. Holds /proc/PID of its first process open."""

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
        self._proc = _closed(self._proc)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def settle(self, seconds: float = limits.READBACK_SECONDS) -> None:
        """Waits, on a thread, until the sandbox is complete. bubblewrap tells nobody, so its status is looked at."""
        deadline = time.monotonic() + seconds
        time.sleep(limits.SETTLE_FIRST_SECONDS)
        pause = limits.SETTLE_POLL_SECONDS
        while not self._complete(deadline, seconds):
            time.sleep(pause)
            pause = min(pause * 1.1, limits.LONGEST_POLL_SECONDS)

    def _complete(self, deadline: float, seconds: float) -> bool:
        try:
            status = self._read("status")
        except OSError as error:
            raise NotBuilt("bubblewrap ended before the sandbox was built") from error
        if _NO_CAPABILITIES.search(status):
            return True
        if b"\nState:\tZ" in status:
            raise NotBuilt("bubblewrap ended before the sandbox was built")
        if time.monotonic() > deadline:
            raise NotBuilt(f"bubblewrap built no sandbox within {seconds:.0f} s")
        return False

    @contextmanager
    def network(self) -> Iterator[tuple[int, int]]:
        """Descriptors of the sandbox's network and of the user namespace that owns it.

        bubblewrap goes on into a second user namespace, which has no power over the network: the first one has. Both
        are reached through the directory that is held open, so they are this sandbox's whatever became of its number.
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
        """Every way out of the sandbox's network: routes of IPv4 beside its loopback's, and of IPv6 over any other."""
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
        # The command may hold spaces and brackets; the fields after its last bracket are plain.
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
        """The bubblewrap process that made the sandbox and stays outside."""
        return int(status["PPid"])

    def _mount_table(self) -> bytes:
        return self._read("mountinfo")

    def _builder_mounts(self, pid: int) -> tuple[MountSeen, ...] | None:
        """The writable mounts of the process that made the sandbox; None where they are this process's own."""
        with hold(os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as proc:
            if namespace_number(os.readlink("ns/mnt", dir_fd=proc)) == own_namespaces()["mnt"]:
                return None
            return parse_mounts(self._builder_table(proc), only_writable=True)

    def _builder_table(self, proc: int) -> bytes:
        return _read(proc, "mountinfo")

    def limit_processes(self, plan: BubblewrapPlan) -> ReceiptLine:
        """Sets how many processes the sandbox may have and reads back every resource limit.

        Set here, in the sandbox's own user namespace, the kernel counts that namespace's processes alone: a limit for
        the whole tree that needs no cgroup. Only the host's root user is never refused a process by it.
        """
        count = plan.profile.limits.pids
        try:
            resource.prlimit(self.pid, resource.RLIMIT_NPROC, (count, count))
            seen = parse_limits(self._read("limits").decode("ascii", "replace"))
        except OSError as error:
            raise NotBuilt(f"the number of processes could not be limited: {error.strerror}") from error
        return rlimits_line(plan, seen, uid=plan.facts.host.uid)

    def filter_mode(self) -> str | None:
        """The Seccomp field after release, or None where the process ended before the filter was seen."""
        deadline = time.monotonic() + limits.FILTER_LOOK_SECONDS
        pause = limits.SETTLE_POLL_SECONDS
        while True:
            try:
                mode = parse_status(self._read("status").decode("utf-8", "replace")).get("Seccomp")
            except OSError:
                return None
            if mode in (None, FILTER_MODE) or time.monotonic() > deadline:
                return mode
            # The sandbox needs the processor more than we do.
            time.sleep(pause)
            pause = min(pause * 1.5, limits.LONGEST_POLL_SECONDS)

    def _read(self, name: str) -> bytes:
        return _read(self._proc, name)

    def _namespace(self, name: str) -> int:
        return namespace_number(os.readlink(f"ns/{name}", dir_fd=self._proc))

    def _outer_users(self) -> tuple[int, ...]:
        """The user namespaces around the sandbox's own, as far as this process may see: its own is the last."""
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
        """What the sandbox will find at its own paths, resolved in its own root and past no link."""
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
        parts: list[bytes] = []
        while part := os.read(file, 65_536):
            parts.append(part)
            if len(parts) * 65_536 > _MAX_FILE_BYTES:
                raise ValueError(f"{name} of a process is too long")
        return b"".join(parts)


@lru_cache(maxsize=1)
def own_namespaces() -> dict[str, int]:
    """Those of this process, which never leaves them."""
    return {name: namespace_number(os.readlink(f"/proc/self/ns/{name}")) for name in NAMESPACES}


def namespace_number(link: str) -> int:
    """4026531840 of ``mnt:[4026531840]``."""
    return int(link.partition("[")[2].rstrip("]"))


def release_checked(
    plan: BubblewrapPlan,
    gate: Gate,
    waiting: Waiting,
    look_at_network: Callable[[Waiting], NetworkSeen | None] = lambda _: None,
) -> Receipt:
    """Waits until the sandbox is complete, looks, refuses unless every required layer held, and lets the program start.

    Blocks for some milliseconds: for a thread. The filter cannot be seen before the start; that one was given is
    checked before, that it is in force right after. Whenever this raises, the caller ends the sandbox: until its
    release it is not bound to the life of bubblewrap's other process.
    """
    waiting.settle()
    required = plan.profile.required_layers
    seen = waiting.evidence(plan, look_at_network(waiting))
    receipt = Receipt.of((*receipt_lines(plan, seen), waiting.limit_processes(plan)))
    refuse_unmet(receipt, required & {line.layer for line in receipt.lines})
    filtered = required & {Layer.SECCOMP}
    refuse_unmet(Receipt.of([filter_line(plan, None)]), filtered)
    gate.release()
    receipt = receipt.with_lines([filter_line(plan, waiting.filter_mode())])
    refuse_unmet(receipt, filtered)
    return receipt
