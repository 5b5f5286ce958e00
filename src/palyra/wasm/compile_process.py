"""Has a module compiled by a process of its own, which is killed when it takes too long."""

import asyncio
import mmap
import os
from typing import Final

from palyra.wasm.cache import Stored, filled_memory_file, memory_file, seal, seal_size
from palyra.wasm.carried_out import carried_out
from palyra.wasm.limits import MAX_COMPILED_BYTES, PoolSettings
from palyra.wasm.log_text import shown
from palyra.wasm.outcome import CompileFailed, LinkFailed
from palyra.wasm.wire import Compile, Compiled
from palyra.wasm.worker_link import LinkBroken, WorkerLink
from palyra.wasm.worker_source import COMPILER, WorkerSource

_MS_PER_SECOND: Final = 1_000
# Names of imports are in it, and their types.
_MAX_SAID_CHARS: Final = 2_048


async def compile_in_process(source: WorkerSource, settings: PoolSettings, module: bytes) -> Stored:
    given = await carried_out(lambda: filled_memory_file(module), os.close)
    made = -1
    try:
        made = memory_file(MAX_COMPILED_BYTES)
        seal_size(made)
        answer = await _ask(source, settings, Compile(size=len(module), room=MAX_COMPILED_BYTES), (given, made))
        if answer.kind == "link":
            raise LinkFailed(shown(answer.message, _MAX_SAID_CHARS))
        if answer.kind or answer.facts is None or not 0 < answer.size <= MAX_COMPILED_BYTES:
            raise CompileFailed(shown(answer.message, _MAX_SAID_CHARS) or "the compiler gave no module")
        # A copy: nothing that the compiling process could still write to.
        descriptor = await carried_out(lambda: _copy(made, answer.size), os.close)
        return Stored(descriptor, answer.size, answer.facts)
    finally:
        os.close(given)
        if made >= 0:
            os.close(made)


async def _ask(
    source: WorkerSource, settings: PoolSettings, question: Compile, descriptors: tuple[int, ...]
) -> Compiled:
    link = WorkerLink(*await source.make(COMPILER))
    try:
        async with asyncio.timeout(settings.compile_timeout_ms / _MS_PER_SECOND):
            await link.send(question, descriptors)
            answer = await link.receive()
    except TimeoutError:
        raise CompileFailed(
            f"compiling took longer than {settings.compile_timeout_ms} ms", timeout_ms=settings.compile_timeout_ms
        ) from None
    except LinkBroken as problem:
        raise CompileFailed("the compiler ended: the module needs more memory than it may have") from problem
    finally:
        link.close()
    if not isinstance(answer, Compiled):
        raise CompileFailed("the compiler did not keep the protocol")
    return answer


def _copy(descriptor: int, size: int) -> int:
    with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) as content:
        copy = filled_memory_file(content[:size])
    seal(copy)
    return copy
