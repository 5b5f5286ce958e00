"""Bait around a workspace, and the traces that an attempt leaves on it.

Everything is made fresh for one run and named by a random token: files outside the workspace, listeners on the host's
loopback, a process to be attacked, shared memory, a variable, an open descriptor. Nothing else is ever a target.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final, Self

from palyra.doctor.attacks.attempt import Bait
from palyra.doctor.attacks.planted_attempts import REPOSITORY, look_as_person
from palyra.workspace.root import hold

MAX_COMPARED_BYTES: Final = 4096


def find_survivors(comm: str) -> Iterator[str]:
    """Find processes by the name that the attacking program gave itself; its children have it too, also as zombies."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            text = file.read()
            if text[text.find(b"(") + 1 : text.rfind(b")")] == comm.encode():
                state = text[text.rfind(b")") + 2 :][:1].decode()
                yield f"process {name} outlived the call (state {state})"


def limits_of(pid: int) -> str:
    with open(f"/proc/{pid}/limits") as file:
        return file.read()


def find_touch(pid: int, limits: str) -> str:
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/status") as file:
            tracer = next((line for line in file if line.startswith("TracerPid:")), "TracerPid:\t0")
        if int(tracer.split()[1]):
            return "the host's process is being traced"
        if limits_of(pid) != limits:
            return "the limits of the host's process were changed"
    return ""


def list_files(folder: str) -> Iterator[tuple[str, Any]]:
    for name in sorted(os.listdir(folder)):
        yield name, describe(f"{folder}/{name}")


def describe(path: str) -> Any:
    try:
        status = os.lstat(path)
        content = b""
        if stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:
                content = file.read(MAX_COMPARED_BYTES)
    except OSError:
        return None
    return status.st_mode, status.st_uid, status.st_ino, status.st_size, int(status.st_mtime), content


def attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []


def find_planted(workspace: str) -> Iterator[str]:
    """Find files that would do harm outside if a program used them: devices, programs with rights, dumped memory."""
    for folder, _, files in os.walk(workspace):
        for name in files:
            mode = os.lstat(f"{folder}/{name}").st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                yield f"a device was left in the workspace: {name}"
            if stat.S_ISREG(mode) and "security.capability" in attributes(f"{folder}/{name}"):
                yield f"a file with capabilities was left in the workspace: {name}"
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                yield f"a file with mode {stat.S_IMODE(mode):04o} was left in the workspace: {name}"
            if stat.S_ISREG(mode) and (name == "core" or name.startswith("core.")):
                yield f"a core dump was left in the workspace: {name}"


_HOOK: Final = b"#!/bin/sh\nexit 0\n"
# The output of a probe that could send its signal, and the time that the victim has to die.
_SIGNALLED: Final = b"signalled process"
_DYING_SECONDS: Final = 5.0
_PROTECTED_FILES: Final = {
    ".git/config": b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    ".git/hooks/pre-commit": _HOOK,
    ".env": b"KEY=value\n",
    "deep/er/.github/workflows/ci.yml": b"on: push\n",
}
VARIABLE: Final = "ATTACK_BAIT_"
_IPC_CREAT, _IPC_RMID, _SHM_BYTES = 0o1000, 0, 4096
_AT_FDCWD, _HANDLE_BYTES, _EOVERFLOW = -100, 128, 75
_VICTIM_SECONDS: Final = 600
PATH_CHARS_SHOWN: Final = 40

# Allows itself to be traced by anybody, so that no switch of the machine's makes the attack look stopped by us.
_VICTIM: Final = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
libc.prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
libc.prctl(15, ctypes.c_char_p(sys.argv[1].encode()), 0, 0, 0)
held = ctypes.create_string_buffer(sys.argv[2].encode())
descriptor = os.open(sys.argv[3], os.O_RDONLY)
os.chdir(os.path.dirname(sys.argv[3]))
print(ctypes.addressof(held), descriptor, flush=True)
time.sleep(float(sys.argv[4]))
"""


class BaitFolder:
    """Use as a context manager. ``reset`` before each attempt, ``traces`` after it."""

    def __init__(self, base: str, python: str) -> None:
        self.base = base
        self.python = python
        self.token = secrets.token_hex(16)
        self.comm = "pb" + self.token[:12]
        self.victim_comm = "pv" + self.token[:12]
        self.variable = VARIABLE + self.token[:8].upper()
        self.workspace = f"{base}/workspace"
        self.outside = f"{base}/outside"
        self.scratch = f"{base}/scratch"
        self._closing = contextlib.ExitStack()
        self._victim: subprocess.Popen[bytes] | None = None
        self._victim_limits = ""
        self._before: dict[str, Any] = {}
        self._names: dict[str, Any] = {}
        self._is_visited = False

    def __enter__(self) -> Self:
        with self._closing as stack:
            for path in (self.workspace, self.outside, self.scratch):
                os.makedirs(path, mode=0o700, exist_ok=True)
            self._listen(stack)
            self._share_memory(stack)
            # Inherited by nothing that is started rightly.
            self._open = os.open(self._fill_outside(), os.O_RDONLY)
            os.set_inheritable(self._open, True)
            stack.callback(os.close, self._open)
            os.environ[self.variable] = self.token
            stack.callback(os.environ.pop, self.variable, None)
            stack.callback(self._end_victim)
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _listen(self, stack: contextlib.ExitStack) -> None:
        def made(family: int, kind: int, address: Any) -> socket.socket | None:
            try:
                listener = stack.enter_context(socket.socket(family, kind))
                listener.bind(address)
            except OSError:
                return None
            if kind == socket.SOCK_STREAM:
                listener.listen(16)
            listener.setblocking(False)
            return listener

        self._streams = {
            "the host's listener on 127.0.0.1": made(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "the host's listener on ::1": made(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            "the host's abstract socket": made(socket.AF_UNIX, socket.SOCK_STREAM, "\0palyra-" + self.token),
        }
        self._datagrams = made(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
            free.bind(("127.0.0.1", 0))
            self._free_port = free.getsockname()[1]
        tcp, tcp6, _ = self._streams.values()
        self._names |= {
            "tcp": tcp.getsockname()[1] if tcp else 0,
            "tcp6": tcp6.getsockname()[1] if tcp6 else 0,
            "udp": self._datagrams.getsockname()[1] if self._datagrams else 0,
            "free_port": self._free_port,
            "abstract": "palyra-" + self.token,
        }
        self._path_socket: socket.socket | None = None
        stack.callback(self._close_path_socket)

    def _close_path_socket(self) -> None:
        if self._path_socket is not None:
            self._path_socket.close()

    def _share_memory(self, stack: contextlib.ExitStack) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        library.shmat.restype = ctypes.c_void_p
        number = library.shmget(0, _SHM_BYTES, _IPC_CREAT | 0o600)
        self._names["shm"] = number
        if number < 0:
            return
        stack.callback(library.shmctl, number, _IPC_RMID, None)
        address = library.shmat(number, None, 0)
        ctypes.memmove(address, self.token.encode() + b"\0", len(self.token) + 1)
        library.shmdt(ctypes.c_void_p(address))

    def names(self) -> dict[str, Any]:
        """Return the values for ``{name}`` in the attempts' arguments."""
        self._start_victim()
        return self._names | {
            "token": self.token,
            "runner": os.getpid(),
            "workspace": self.workspace,
            "outside": self.outside,
            "secret": f"{self.outside}/secret",
            "marker": f"{self.outside}/marker",
            "pipe": f"{self.outside}/pipe",
            "socket": f"{self.outside}/socket",
            "victim_comm": self.victim_comm,
            "victim_size": len(self.token),
            "handle": _handle_of(f"{self.outside}/secret"),
            "loader": next((path for path in _LOADERS if os.path.exists(path)), _LOADERS[0]),
            "shell": os.path.realpath("/bin/sh"),
        }

    def _start_victim(self) -> None:
        """Replace a victim that was touched, so that no attempt is blamed for another."""
        if self._victim is not None and self._victim.poll() is None:
            if not find_touch(self._victim.pid, self._victim_limits):
                return
            self._end_victim()
        self._victim = subprocess.Popen(
            [
                *(self.python, "-I", "-S", "-c", _VICTIM),
                *(self.victim_comm, self.token, f"{self.outside}/secret", str(_VICTIM_SECONDS)),
            ],
            env={self.variable: self.token},
            stdout=subprocess.PIPE,
            cwd="/",
        )
        if self._victim.stdout is None:
            raise RuntimeError("the victim has no output")
        address, descriptor = self._victim.stdout.readline().split()
        self._victim.stdout.close()
        pid = self._victim.pid
        self._names |= {"victim": pid, "victim_address": int(address), "victim_descriptor": int(descriptor)}
        self._victim_limits = limits_of(pid)

    def _end_victim(self) -> None:
        if self._victim is not None:
            self._victim.kill()
            self._victim.wait()

    def reset(self, bait: frozenset[Bait], probes: str) -> None:
        """Restore the workspace and everything around it to the state before any attempt."""
        for path in (self.workspace, self.outside):
            for name in os.listdir(path):
                _remove(f"{path}/{name}")
        self._fill_outside()
        self._fill_workspace(bait, probes)
        self._is_visited = Bait.PERSON in bait
        tuple(self._drain_listeners())
        self._before = dict(list_files(self.outside))
        self._protected = dict(self._protected_now())
        self._start_victim()

    def _compiled(self, probes: str) -> str:
        """Compile the probes for the interpreter inside: that takes it longer than to run one."""
        made = f"{self.scratch}/probes"
        if not os.path.exists(made):
            shutil.copytree(probes, made, ignore=shutil.ignore_patterns("__pycache__"))
            subprocess.run(
                [self.python, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", made],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # Not this process's own, which the other tier's run may be changing at this moment.
                env={},
                check=False,
            )
        return made

    def _fill_outside(self) -> str:
        secret = f"{self.outside}/secret"
        _write(secret, self.token.encode())
        _write(f"{self.outside}/marker", b"untouched\n")
        os.mkfifo(f"{self.outside}/pipe")
        self._close_path_socket()
        self._path_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # By descriptor: a socket's path may be no longer than 107 bytes, and a folder's name often is.
        with hold(os.open(self.outside, os.O_PATH | os.O_DIRECTORY)) as folder:
            self._path_socket.bind(f"/proc/self/fd/{folder}/socket")
        self._path_socket.listen(4)
        self._path_socket.setblocking(False)
        return secret

    def _fill_workspace(self, bait: frozenset[Bait], probes: str) -> None:
        files = {**_PROTECTED_FILES, **(REPOSITORY if Bait.PERSON in bait else {})}
        for name, content in files.items():
            path = f"{self.workspace}/{name}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _write(path, content)
        os.chmod(f"{self.workspace}/.git/hooks/pre-commit", 0o700)
        _write(f"{self.workspace}/ordinary", b"ordinary\n")
        shutil.copytree(self._compiled(probes), f"{self.workspace}/probes")
        links = {"link-to-secret": "secret", "link-to-marker": "marker", "link-out": ""}
        if bait & {Bait.LINKS_OUT, Bait.SHELLS}:
            for name, target in links.items():
                os.symlink(f"../outside/{target}".rstrip("/"), f"{self.workspace}/{name}")
        if Bait.GHOST_LINK in bait:
            # bubblewrap sees the host beneath /oldroot while it makes its mount points.
            os.symlink(f"/oldroot{self.outside}/ghost", f"{self.workspace}/.vscode")
            os.symlink(f"{self.outside}/ghost", f"{self.workspace}/.env.local")
        if Bait.ALIAS in bait:
            os.link(f"{self.workspace}/.env", f"{self.workspace}/second-name")
        if Bait.SHELLS in bait:
            os.symlink("/bin/sh", f"{self.workspace}/innocent-link")
            shutil.copy(os.path.realpath("/bin/sh"), f"{self.workspace}/innocent-copy")
            _write(f"{self.workspace}/innocent-script", f"#!/bin/sh\necho {self.token}\n".encode())
            _write(f"{self.workspace}/innocent-text", f"echo {self.token}\n".encode())
            for name in ("innocent-script", "innocent-text"):
                os.chmod(f"{self.workspace}/{name}", 0o700)

    def traces(self, output: bytes) -> tuple[str, ...]:
        """Describe everything that should not be there after an attempt."""
        return tuple(self._find_traces(output))

    def _find_traces(self, output: bytes) -> Iterator[str]:
        if self.token.encode() in output:
            yield "the secret came out"
        # What runs here leaves a trace outside.
        shown = tuple(look_as_person(self.workspace)) if self._is_visited else ()
        after = dict(list_files(self.outside))
        for name in sorted(self._before.keys() | after.keys()):
            if self._before.get(name) != after.get(name):
                what = "appeared" if name not in self._before else "is gone" if name not in after else "was changed"
                yield f"outside/{name} {what}"
        protected = dict(self._protected_now())
        for name in sorted(self._protected.keys() | protected.keys()):
            if self._protected.get(name) != protected.get(name):
                yield f"protected {name} changed"
        yield from find_planted(self.workspace)
        yield from shown
        yield from self._drain_listeners()
        if self._victim is not None and self._victim_ended(_SIGNALLED in output):
            yield "the host's process was ended"
        elif self._victim is not None and (seen := find_touch(self._victim.pid, self._victim_limits)):
            yield seen
        yield from find_survivors(self.comm)

    def _victim_ended(self, expected: bool) -> bool:
        """Tell whether the victim ended. A killed process is not dead at once on a busy machine."""
        if self._victim is None:
            return False
        if expected:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._victim.wait(_DYING_SECONDS)
        return self._victim.poll() is not None

    def _protected_now(self) -> Iterator[tuple[str, Any]]:
        for name in _PROTECTED_FILES:
            if self._is_visited and name == ".git/config":
                # A program may change what makes nothing run: the visit shows that.
                continue
            found = describe(f"{self.workspace}/{name}")
            # Git writes its configuration again under the same name: only mode and text count.
            yield name, (found[0], found[-1]) if found and name == ".git/config" else found
        for folder in (".git", "vendor/.git", "d/" * 80 + ".git"):
            with contextlib.suppress(OSError):
                for name in os.listdir(f"{self.workspace}/{folder}/hooks"):
                    yield f"{folder[-PATH_CHARS_SHOWN:]}/hooks/{name}", True

    def _drain_listeners(self) -> Iterator[str]:
        for name, listener in (*self._streams.items(), ("the unix socket outside", self._path_socket)):
            while listener is not None:
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    break
                connection.close()
                yield f"{name} got a connection"
        while self._datagrams is not None:
            try:
                content = self._datagrams.recv(100)
            except BlockingIOError:
                break
            if self.token.encode() in content:
                yield "the host's UDP socket got a datagram"

    def knock(self) -> bool:
        """Tell whether a program inside listens on the host's loopback, at the port that its order names."""
        try:
            with socket.create_connection(("127.0.0.1", self._free_port), timeout=1):
                return True
        except OSError:
            return False


_LOADERS: Final = (
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
)


def _handle_of(path: str) -> str:
    """Return the struct file_handle of a file in hexadecimal, empty if the file system has none."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "name_to_handle_at"):
        return ""
    buffer = ctypes.create_string_buffer(8 + _HANDLE_BYTES)
    ctypes.memmove(buffer, _HANDLE_BYTES.to_bytes(4, sys.byteorder), 4)
    mount = ctypes.c_int()
    if library.name_to_handle_at(_AT_FDCWD, path.encode(), buffer, ctypes.byref(mount), 0) != 0:
        return ""
    size = int.from_bytes(buffer.raw[:4], sys.byteorder)
    return buffer.raw[: 8 + size].hex()


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
