"""The process that worker processes are forked from, and what each of them does first.

The daemon starts one such process and asks it for workers. It has loaded wasmtime and run a guest once, so a fork is
ready in milliseconds and shares its memory. It has no threads, no secrets and no environment; it never sees a module.
Every worker confines itself before it reads its first frame, and ends when this process ends, which ends when the
daemon's socket closes.
"""

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

import wasmtime

from palyra.sandbox.layers import linux_calls
from palyra.wasm.domain.frames import VERSION, Call, Load, Ready
from palyra.wasm.domain.limits import COMPILE_MEMORY_BYTES, WORKER_MEMORY_BYTES
from palyra.wasm.domain.module_facts import CORE, module_facts
from palyra.wasm.engine.config import engine_name, make_engine
from palyra.wasm.engine.metering import ProcessMemory, RunMeter
from palyra.wasm.process import confinement
from palyra.wasm.process.guest_process import DaemonGone, Guests, Worker, WorkerChannel, compile_one

# What the daemon asks for, and the answers: a worker was made (its pidfd comes along), or could not be.
WORKER, COMPILER = b"W", b"C"
MADE, FAILED = b"M", b"F"
_REQUEST_BYTES: Final = 16
_WARM_GUEST: Final = """
(module
  (memory (export "memory") 1)
  (func (export "palyra_alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "run") (param i32 i32 i32 i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get 2)) (i64.const 32)) (i64.extend_i32_u (local.get 3)))))
"""


def warm_up(guests: Guests) -> None:
    """Run a guest once, so that nothing has to be loaded or opened after confinement."""
    module = bytes(wasmtime.wat2wasm(_WARM_GUEST))
    facts = module_facts(module)
    compiled = bytes(wasmtime.Module(guests.engine, module).serialize())
    frame = Load(digest=b"", form=CORE, size=len(compiled), facts=facts)
    loaded = guests.load(CORE, compiled, frame)
    memory = ProcessMemory()
    guests.run(loaded, _warm_call(), RunMeter(memory))
    memory.close()


def _warm_call() -> Call:
    return Call(
        digest=b"",
        entry="run",
        tool="warm",
        input=b"{}",
        counts=(0, 0, 0, 0),
        timeout_us=0,
        fuel=1_000_000,
        memory_bytes=1 << 20,
        table_elements=0,
        max_output_bytes=1024,
        max_log_bytes=0,
        max_log_lines=0,
        max_log_line_chars=0,
        max_host_calls=0,
        max_request_bytes=0,
        host_call_timeout_ms=0,
        clock_ms=0,
        random_seed=b"",
    )


def _be_worker(connection: socket.socket, guests: Guests, kind: bytes, engine: str) -> None:
    memory = ProcessMemory()
    channel = WorkerChannel(connection)
    if kind == COMPILER:
        linux_calls.name_this_process(b"palyra-compile")
        guests = Guests(make_engine(parallel=True))
        confinement.limit_resources(COMPILE_MEMORY_BYTES)
        confinement.confine()
        compile_one(channel, guests)
        return
    linux_calls.name_this_process(b"palyra-wasm")
    confinement.limit_resources(WORKER_MEMORY_BYTES)
    worker = Worker(channel, guests, memory)
    confinement.confine()
    channel.send(Ready(version=VERSION, engine=engine))
    worker.serve()


class Nursery:
    def __init__(self, control: socket.socket, guests: Guests) -> None:
        self._control = control
        self._guests = guests
        # Asked for before confinement: it is read from files.
        self._engine = engine_name()
        self._pid = os.getpid()
        self._poll = select.poll()
        # Workers by their pidfd, which becomes readable when one ends.
        self._children: dict[int, int] = {}

    def serve(self) -> None:
        control = self._control.fileno()
        self._poll.register(control, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._children:
                    self._reap(descriptor)
                elif not self._obey():
                    return

    def _obey(self) -> bool:
        """Serve one request of the daemon. Returns False when the daemon is gone."""
        try:
            request, descriptors, _, _ = socket.recv_fds(self._control, _REQUEST_BYTES, 1)
        except OSError:
            return False
        if not request or len(descriptors) != 1:
            return False
        with socket.socket(fileno=descriptors[0]) as connection:
            self._make(request, connection)
        return True

    def _reap(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.waitpid(self._children.pop(descriptor), 0)
        os.close(descriptor)

    def _make(self, kind: bytes, connection: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError:
            self._control.send(FAILED)
            return
        if pid == 0:
            self._in_worker(kind, connection)
        # The child is not reaped before it is polled: the descriptor names this one and no other.
        descriptor = os.pidfd_open(pid)
        self._children[descriptor] = pid
        self._poll.register(descriptor, select.POLLIN)
        try:
            socket.send_fds(self._control, [MADE], [descriptor])
        except OSError:  # the daemon is gone: the next look at the socket says so
            return

    def _in_worker(self, kind: bytes, connection: socket.socket) -> None:
        status = 1
        try:
            self._control.close()
            for descriptor in self._children:
                os.close(descriptor)
            confinement.die_with_parent(self._pid)
            # A session of its own: no terminal, and no group to be signalled with.
            os.setsid()
            _be_worker(connection, self._guests, kind, self._engine)
            status = 0
        except DaemonGone:
            status = 0
        except Exception:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)


def main(arguments: list[str], exit_process: Callable[[int], object] = os._exit) -> None:
    control = socket.socket(fileno=int(arguments[0]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    confinement.hide()
    linux_calls.name_this_process(b"palyra-nursery")
    os.chdir("/")
    guests = Guests(make_engine())
    warm_up(guests)
    gc.collect()
    # A collection would touch, and so copy, every page a fork shares.
    gc.freeze()
    Nursery(control, guests).serve()
    exit_process(0)


if __name__ == "__main__":
    main(sys.argv[1:])
