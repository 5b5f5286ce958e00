"""Compiles one module, in a process that was made for it and ends with it."""

import wasmtime
from wasmtime import component as wit

from palyra.errors import PalyraError
from palyra.wasm import classify
from palyra.wasm.module_facts import CORE, module_facts
from palyra.wasm.run_meter import GuestEnded
from palyra.wasm.wire import Compile, Compiled
from palyra.wasm.worker import Guests
from palyra.wasm.worker_channel import WorkerChannel


def compile_one(channel: WorkerChannel, guests: Guests) -> None:
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
            facts = guests.components.described(component, facts)
            compiled = bytes(component.serialize())
    except PalyraError as problem:
        return Compiled(kind="compile", message=problem.message, size=0, facts=None)
    except GuestEnded as problem:
        return Compiled(kind=problem.kind, message=problem.message, size=0, facts=None)
    except wasmtime.WasmtimeError as problem:
        said = str(problem)
        kind = "link" if classify.is_about_imports(said) else "compile"
        return Compiled(kind=kind, message=classify.complaint(said), size=0, facts=None)
    if len(compiled) > frame.room:
        return Compiled(kind="compile", message="the compiled module is too large", size=0, facts=None)
    channel.fill_file(compiled, frame.room)
    return Compiled(kind="", message="", size=len(compiled), facts=facts)
