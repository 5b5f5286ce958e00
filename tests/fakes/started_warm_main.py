"""The process that ``started_warm`` copies. It has one thread, imports, and copies itself; each copy is a program."""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
from typing import Any

_CLONE_PARENT = 0x00008000
_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
_REQUEST_BYTES = 1 << 18
# Libraries with threads or connections of their own are for each program to load.
_NOT_HERE = ("grpc", "google", "mcp", "wasmtime", "opentelemetry", "playwright", "keyring")
_WITHOUT_THEM = (
    *("palyra.daemon.palyrad", "palyra.daemon.embedded", "palyra.server.console.services", "palyra.server.console.app"),
    *("palyra.client.client", "palyra.client.address", "palyra.telemetry.log", "palyra.telemetry.prometheus"),
    *("palyra.pipeline.approve", "palyra.executors.node.executor", "palyra.executors.worker.executor"),
    *(
        "palyra.daemon.browserd_supervisor",
        "palyra.executors.browser.operator_service",
        "palyra.executors.browser.executor",
        "uvloop",
    ),
    *("palyra.daemon.fleet_wiring", "palyra.executors.worker.executor", "palyra.daemon.vault_wiring"),
)

# Programs of their own, which load such libraries.
_PROGRAMS = ("palyra.cli.browserd",)


def import_what_programs_need() -> None:
    import palyra.cli.commands

    packages = (palyra.cli, palyra.cli.commands)
    commands = [
        f"{package.__name__}.{found.name}" for package in packages for found in pkgutil.iter_modules(package.__path__)
    ]
    for module in (*commands, *_WITHOUT_THEM):
        if module not in _PROGRAMS:
            importlib.import_module(module)
    loaded = [name for name in _NOT_HERE if name in sys.modules]
    assert loaded == [], f"{loaded} would be copied"


def copy_for_the_parent() -> int:
    """fork(2), except that the copy is a sibling. As in the C library's, its thread knows its own number."""
    library, python = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    library.pthread_self.restype = ctypes.c_void_p
    own = library.pthread_self()
    words = (ctypes.c_int * 512).from_address(own)
    place = own + 4 * words[:].index(library.gettid())
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID | signal.SIGCHLD
    at = [ctypes.c_void_p(place), ctypes.c_long(0)]
    order = at if os.uname().machine == "x86_64" else at[::-1]
    python.PyOS_BeforeFork()
    copied: int = library.syscall(ctypes.c_long(_SYS_CLONE), ctypes.c_long(flags), None, None, *order)
    if copied == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if copied < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return copied


def become(request: dict[str, Any], descriptors: list[int]) -> list[str]:
    for own, given in enumerate(descriptors):
        os.dup2(given, own)
    for given in descriptors:
        os.close(given)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8", errors="strict", closefd=False)  # noqa: SIM115
    sys.stdout = _text(1, "strict", at_once=at_once)
    sys.stderr = _text(2, "backslashreplace", at_once=True)
    sys.argv = ["palyra", *request["arguments"]]
    return request["arguments"]


def _text(descriptor: int, errors: str, *, at_once: bool) -> io.TextIOWrapper:
    binary = open(descriptor, "wb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        binary, encoding="utf-8", errors=errors, line_buffering=os.isatty(descriptor), write_through=at_once
    )


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()
    import_what_programs_need()
    # Nothing of it is looked at again: what is looked at is copied for good.
    gc.freeze()
    gc.enable()
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not message:
            return
        copied = copy_for_the_parent()
        if copied == 0:
            requests.close()
            break
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(str(copied).encode())
    arguments = become(json.loads(message), descriptors)
    from palyra.cli.main import run

    leave(run(arguments))


def leave(status: int) -> None:
    """As Python ends a program, but for taking apart, object by object, what was copied."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
