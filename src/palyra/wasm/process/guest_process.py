"""A worker process: it loads modules, runs one guest at a time, and passes their questions to the daemon."""

import array
import mmap
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Final

import wasmtime
from wasmtime import component as wit

from palyra.errors import PalyraError
from palyra.wasm.domain import outcome
from palyra.wasm.domain.frames import (
    PACKET_BYTES,
    Answer,
    Ask,
    Assembler,
    Call,
    Compile,
    Compiled,
    Done,
    FromGuestProcess,
    Load,
    Loaded,
    ToGuestProcess,
    Unload,
    packets,
    read_to_guest_process,
)
from palyra.wasm.domain.host_interface import Status
from palyra.wasm.domain.module_facts import CORE, module_facts
from palyra.wasm.engine import libwasmtime
from palyra.wasm.engine.metering import Deadline, GuestEnded, ProcessMemory, RunMeter
from palyra.wasm.host.component_guest import ComponentGuests, LoadedComponent
from palyra.wasm.host.core_functions import ActiveCall
from palyra.wasm.host.core_guest import CoreGuests, LoadedCore
from palyra.wasm.host.host_calls import HostCalls

_MAX_DESCRIPTORS = 2
_ANCILLARY_BYTES = socket.CMSG_LEN(_MAX_DESCRIPTORS * array.array("i").itemsize)


class DaemonGone(Exception):
    """The daemon closed the socket."""


class WorkerChannel:
    """The worker's end of its socket: whole frames in and out, blocking."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        # A time-out of the socket itself would need a system call that a confined worker does not have.
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._assembler = Assembler()
        # Descriptors that came with the frame last received.
        self.descriptors: list[int] = []

    def send(self, frame: FromGuestProcess) -> None:
        try:
            for packet in packets(frame):
                self._socket.send(packet)
        except OSError as problem:
            raise DaemonGone from problem

    def receive(self, timeout: float | None = None) -> ToGuestProcess | None:
        """Return the next frame, or None if none came in time."""
        try:
            while True:
                if timeout is not None and not self._poll.poll(timeout * 1_000):
                    return None
                packet, beside, _, _ = self._socket.recvmsg(PACKET_BYTES, _ANCILLARY_BYTES)
                if not packet:
                    raise DaemonGone
                for _, _, data in beside:
                    self.descriptors += array.array("i", data)
                whole = self._assembler.take(packet)
                if whole is not None:
                    return read_to_guest_process(whole)
        except OSError as problem:
            raise DaemonGone from problem

    def take_file(self, size: int) -> bytes:
        """Return the content of the memory file that came first, and close it."""
        descriptor = self.descriptors.pop(0)
        try:
            with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) as content:
                return content[:size]
        finally:
            os.close(descriptor)

    def fill_file(self, content: bytes, room: int) -> None:
        """Write into the memory file that came next."""
        descriptor = self.descriptors.pop(0)
        try:
            with mmap.mmap(descriptor, room) as target:
                target[: len(content)] = content
        finally:
            os.close(descriptor)


# The daemon's own limit ends a question first; this is for a daemon that is stuck.
_ANSWER_SLACK_SECONDS: Final = 2.0
_US_PER_SECOND: Final = 1_000_000
_MS_PER_SECOND: Final = 1_000


class Guests:
    """Both kinds of guests. Made before the fork, used after it."""

    def __init__(self, engine: wasmtime.Engine) -> None:
        self.engine = engine
        self.active = ActiveCall()
        self.core = CoreGuests(engine, self.active)
        self.components = ComponentGuests(engine, self.active)

    def load(self, form: str, compiled: bytes, frame: Load) -> LoadedCore | LoadedComponent:
        home = self.core if form == CORE else self.components
        return home.load(compiled, frame.facts)

    def run(
        self,
        loaded: LoadedCore | LoadedComponent,
        call: Call,
        meter: RunMeter,
        begin: Callable[[], None] = lambda: None,
    ) -> bytes | int:
        if isinstance(loaded, LoadedCore):
            return self.core.run(loaded, call, meter, begin)
        return self.components.run(loaded, call, meter, begin)


class Worker:
    def __init__(self, channel: WorkerChannel, guests: Guests, memory: ProcessMemory) -> None:
        self._channel = channel
        self._guests = guests
        self._memory = memory
        self._deadline = Deadline(libwasmtime.address_of(guests.engine))
        self._loaded: dict[bytes, LoadedCore | LoadedComponent] = {}
        self._ends_at = 0.0
        self._answer_seconds = 0.0

    def serve(self) -> None:
        while True:
            frame = self._channel.receive()
            match frame:
                case Call():
                    self._channel.send(self._run(frame))
                case Load():
                    self._channel.send(self._load(frame))
                case Unload():
                    self._loaded.pop(frame.digest, None)
                case _:  # an answer that came too late
                    continue

    def _load(self, frame: Load) -> Loaded:
        compiled = self._channel.take_file(frame.size)
        try:
            self._loaded[frame.digest] = self._guests.load(frame.form, compiled, frame)
        except (wasmtime.WasmtimeError, GuestEnded) as problem:
            return Loaded(digest=frame.digest, problem=outcome.complaint(str(problem)) or "it cannot be loaded")
        return Loaded(digest=frame.digest)

    def _run(self, call: Call) -> Done:
        meter = RunMeter(self._memory)
        calls = HostCalls(call, self._ask)
        active = self._guests.active
        active.begin(calls)
        self._ends_at = time.monotonic() + call.timeout_us / _US_PER_SECOND
        self._answer_seconds = call.host_call_timeout_ms / _MS_PER_SECOND + _ANSWER_SLACK_SECONDS
        kind = message = ""
        faulty = False
        output: bytes | int = b""
        try:
            output = self._guests.run(
                self._loaded[call.digest], call, meter, lambda: self._deadline.arm(call.timeout_us)
            )
        except GuestEnded as end:
            kind, message = outcome.with_memory(end.kind, meter.memory_bytes, call.memory_bytes), end.message
        except PalyraError as problem:
            kind, message = problem.code.removeprefix("wasm."), problem.message
        except Exception as fault:
            # A value that could not be passed between guest and host. Nothing of it may reach the next guest.
            kind, message, faulty = "trap", f"a host function could not answer: {type(fault).__name__}", True
        finally:
            spent = self._deadline.disarm() or faulty
            active.begin(None)
        calls.finish_printing()
        if not kind and calls.failure is not None:
            kind, message, output = "failed", calls.failure, b""
        if not kind and isinstance(output, bytes) and not _is_text(output):
            kind, message, output = "invalid_output", "the guest's output is not UTF-8", b""
        if active.fault is not None and kind:
            message = f"{message} (a host function failed: {type(active.fault).__name__})"
        return Done(
            kind=kind,
            message=message,
            output=output,
            fuel_used=meter.fuel_used,
            peak_memory_bytes=meter.memory_bytes,
            duration_us=meter.duration_us,
            host_calls=calls.count,
            logs=tuple(calls.logs),
            logs_dropped=calls.logs_dropped,
            spent=spent,
        )

    def _ask(self, question: Ask) -> Answer:
        """Send a guest's question to the daemon and wait. A guest whose time is over gets no answer."""
        self._channel.send(question)
        until = min(time.monotonic() + self._answer_seconds, self._ends_at)
        while (left := until - time.monotonic()) > 0:
            frame = self._channel.receive(left)
            if frame is None:
                break
            if isinstance(frame, Answer) and frame.number == question.number:
                return frame
        return Answer(number=question.number, status=Status.TIMED_OUT)


def _is_text(output: bytes) -> bool:
    try:
        output.decode()
    except UnicodeDecodeError:
        return False
    return True


def compile_one(channel: WorkerChannel, guests: Guests) -> None:
    """Compile one module, in a process that was made for it and ends with it."""
    frame = channel.receive()
    if isinstance(frame, Compile):
        channel.send(_compile(channel, guests, frame))


def _compile(channel: WorkerChannel, guests: Guests, frame: Compile) -> Compiled:
    module = channel.take_file(frame.size)
    try:
        facts = module_facts(module, most=frame.size)
        if facts.form == CORE:
            made = wasmtime.Module(guests.engine, module)
            guests.core.linker.linker.instantiate_pre(made)
            compiled = bytes(made.serialize())
        else:
            component = wit.Component(guests.engine, module)
            guests.components.link(component)
            facts = guests.components.add_export_types(component, facts)
            compiled = bytes(component.serialize())
    except PalyraError as problem:
        return Compiled(kind="compile", message=problem.message, size=0, facts=None)
    except GuestEnded as problem:
        return Compiled(kind=problem.kind, message=problem.message, size=0, facts=None)
    except wasmtime.WasmtimeError as problem:
        text = str(problem)
        kind = "link" if outcome.is_about_imports(text) else "compile"
        return Compiled(kind=kind, message=outcome.complaint(text), size=0, facts=None)
    if len(compiled) > frame.room:
        return Compiled(kind="compile", message="the compiled module is too large", size=0, facts=None)
    channel.fill_file(compiled, frame.room)
    return Compiled(kind="", message="", size=len(compiled), facts=facts)
