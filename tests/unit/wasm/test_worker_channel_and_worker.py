"""A worker's loop, run in a thread of the test: what it says to which frame."""

import socket
import threading
import time

import msgspec
import pytest
import wasmtime
from wasmtime import _func
from wasmtime.component import _enter

from fakes.wasm_guests import ECHO, imported, minimal, wasm
from palyra.wasm.compiled_modules import fill_memory_file
from palyra.wasm.domain.frames import (
    Answer,
    Ask,
    Assembler,
    Done,
    Load,
    Loaded,
    Unload,
    packets,
    read_from_guest_process,
)
from palyra.wasm.domain.host_interface import Status
from palyra.wasm.domain.module_facts import module_facts
from palyra.wasm.engine.config import make_engine
from palyra.wasm.engine.metering import ProcessMemory
from palyra.wasm.engine.store import GuestStore
from palyra.wasm.host import core_guest
from palyra.wasm.process.fork_server_main import _warm_call
from palyra.wasm.process.guest_process import DaemonGone, Guests, Worker, WorkerChannel

CALL = msgspec.structs.replace(
    _warm_call(), timeout_us=60_000_000, max_host_calls=100, counts=(1, 1, 1, 1), host_call_timeout_ms=100
)


class ActiveCall:
    """The daemon's side."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.guests = Guests(make_engine())
        self.memory = ProcessMemory()
        worker = Worker(WorkerChannel(theirs), self.guests, self.memory)
        self._theirs = theirs
        self._thread = threading.Thread(target=self._serve, args=(worker,))
        self._thread.start()
        self._assembler = Assembler()

    def _serve(self, worker):
        with pytest.raises(DaemonGone):
            worker.serve()

    def send(self, frame, *descriptors):
        for packet in packets(frame):
            socket.send_fds(self._socket, [packet], list(descriptors))

    def receive(self):
        while (whole := self._assembler.take(self._socket.recv(100_000))) is None:
            continue
        return read_from_guest_process(whole)

    def load(self, module, digest=b"d", compiled=None):
        compiled = compiled or bytes(wasmtime.Module(self.guests.engine, module).serialize())
        with open(fill_memory_file(compiled), "rb") as file:
            self.send(Load(digest=digest, form="core", size=len(compiled), facts=module_facts(module)), file.fileno())
            return self.receive()

    def close(self):
        self._socket.close()
        self._thread.join()
        self._theirs.close()
        self.memory.close()


@pytest.fixture
def active():
    made = ActiveCall()
    yield made
    made.close()


def test_a_module_is_loaded_called_and_let_go(active):
    assert active.load(wasm(ECHO)) == Loaded(digest=b"d")
    active.send(msgspec.structs.replace(CALL, digest=b"d", input=b"x" * 1_000))
    done = active.receive()
    assert isinstance(done, Done)
    assert (done.kind, done.output, done.spent) == ("", b"x" * 1_000, False)
    active.send(Unload(digest=b"d"))
    active.send(Answer(number=9, status=0))
    assert active.load(wasm(ECHO)).problem == ""


def test_bytes_that_are_no_compiled_module_are_a_problem_and_no_end(active):
    assert active.load(wasm(ECHO), compiled=b"not compiled by this engine").problem
    assert active.load(wasm(ECHO)).problem == ""


def test_a_question_is_passed_on_and_only_its_own_answer_counts(active):
    active.load(
        minimal(
            "(call $channel-send (i32.const 40000) (i32.const 0) (i32.const 0))", before=imported("channel-send", 3)
        )
    )
    active.send(msgspec.structs.replace(CALL, digest=b"d"))
    ask = active.receive()
    assert isinstance(ask, Ask)
    assert (ask.operation, ask.handle) == ("channel-send", 40_000)
    active.send(Answer(number=ask.number + 1, status=Status.OK))
    active.send(Answer(number=ask.number, status=Status.NOT_FOUND))
    assert active.receive().output == Status.NOT_FOUND


def test_a_guest_whose_time_is_over_gets_no_answer_and_its_worker_is_spent(active):
    active.load(
        minimal(
            "(call $channel-send (i32.const 40000) (i32.const 0) (i32.const 0))", before=imported("channel-send", 3)
        )
    )
    active.send(msgspec.structs.replace(CALL, digest=b"d", timeout_us=30_000))
    assert isinstance(active.receive(), Ask)
    done = active.receive()
    assert done.spent
    assert done.kind in ("timed_out", "")


def test_a_host_function_that_raises_leaves_nothing_in_the_packages_globals(active):
    """The package keeps the last exception of any host function for the next trap. Ours never get there."""

    def broken(_question):
        raise ValueError("a fault of the host")

    guest = minimal(
        "(call $channel-send (i32.const 40000) (i32.const 0) (i32.const 0))", before=imported("channel-send", 3)
    )
    active.load(guest)
    from palyra.wasm.engine.metering import RunMeter
    from palyra.wasm.host.host_calls import HostCalls

    guests = active.guests
    compiled = bytes(wasmtime.Module(guests.engine, guest).serialize())
    loaded = guests.core.load(compiled, module_facts(guest))
    guests.active.begin(HostCalls(CALL, broken))
    assert guests.run(loaded, CALL, RunMeter(active.memory)) == Status.FAILED
    assert isinstance(guests.active.fault, ValueError)
    assert _func.LAST_EXCEPTION is None
    assert _enter.LAST_EXCEPTION is None
    guests.active.begin(None)


def test_a_deadline_that_is_over_before_the_guest_has_its_place_holds_all_the_same(active, monkeypatch):
    """The process may have to wait for a processor while it makes the guest's store."""
    active.load(minimal("(loop $l (br $l)) (i32.const 0)"))

    def slowly(*given):
        time.sleep(0.02)
        return GuestStore(*given)

    monkeypatch.setattr(core_guest, "GuestStore", slowly)
    active.send(msgspec.structs.replace(CALL, digest=b"d", timeout_us=1_000, fuel=50_000_000))
    assert active.receive().kind == "timed_out"
