"""Tier A in the daemon: compile a module once, run it as often as wanted, each time as if the first."""

import asyncio
import hashlib
import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from palyra.secret import Secret
from palyra.wasm.compiled_modules import CacheFolder, CompiledCache, Stored, compile_in_process
from palyra.wasm.domain.frames import Ask, Call, Done, Load, Loaded, Unload
from palyra.wasm.domain.grants import NOTHING_GRANTED, CapabilityGrantSet
from palyra.wasm.domain.host_interface import LOG_LEVELS, RUN, HostServices, NoServices
from palyra.wasm.domain.limits import DEFAULT_TIMEOUT_MS, PoolSettings, RuntimeLimits
from palyra.wasm.domain.module_facts import ModuleFacts, entry_form, share_out
from palyra.wasm.domain.outcome import (
    CUT,
    CompileFailed,
    InputTooLarge,
    LogLine,
    NotCompiled,
    TimedOut,
    WasmOutcome,
    WasmUsage,
    WorkerLost,
    build_error,
    render_text,
)
from palyra.wasm.host_call_dispatcher import HostAnswers
from palyra.wasm.process.fork_server import WorkerSource
from palyra.wasm.process.pool import LinkBroken, WorkerLink, WorkerPool

_LOG = logging.getLogger("palyra.wasm")
_MS_PER_SECOND: Final = 1_000
_US_PER_MS: Final = 1_000
# Loading the largest module takes a third of a second on a busy machine.
_LOAD_SECONDS: Final = 60.0
_NO_SERVICES: Final = NoServices()


class CompiledModule(msgspec.Struct, frozen=True, kw_only=True):
    """A module this runtime can run: the SHA-256 of its bytes, and what it says about itself."""

    digest: str
    facts: ModuleFacts


class WasmRuntime:
    def __init__(
        self,
        *,
        cache_directory: Path,
        key: Secret,
        limits: RuntimeLimits | None = None,
        pool: PoolSettings | None = None,
        source: WorkerSource | None = None,
    ) -> None:
        self._limits = limits or RuntimeLimits()
        self._settings = pool or PoolSettings()
        self._source = source or WorkerSource()
        self.pool = WorkerPool(self._source, self._settings, self._limits.max_instances)
        self.refused_cache_files = 0
        self._cache = CompiledCache(
            CacheFolder(cache_directory, most_bytes=self._settings.disk_cache_bytes),
            hashlib.sha256(key.reveal().encode()).digest(),
            memory_bytes=self._settings.memory_cache_bytes,
            on_refused=self._refused,
        )
        self._compiling = asyncio.Semaphore(max(1, self._settings.compiling))
        self._being_compiled: dict[bytes, asyncio.Lock] = {}
        # The task that makes room on disk. It has to look at first: earlier processes may have left too much.
        self._making_room: asyncio.Task[None] | None = None
        self._may_be_full = True

    @property
    def limits(self) -> RuntimeLimits:
        """The most that any call may have."""
        return self._limits

    @property
    def cache(self) -> CompiledCache:
        return self._cache

    def _refused(self, name: str, why: str) -> None:
        self.refused_cache_files += 1
        _LOG.warning("a compiled module in the cache was not used: %s: %s", name, why)

    async def start(self) -> None:
        """Start workers before the first call, which otherwise does it."""
        await self.pool.start()

    async def close(self) -> None:
        """End every worker and its guest."""
        await self.pool.close()
        await self._source.close()
        if self._making_room is not None:
            await self._making_room
        self._cache.close()

    async def compile(self, module: bytes) -> CompiledModule:
        """Compile a module, or find its compiled form. Raises ``CompileFailed`` or ``LinkFailed``."""
        if len(module) > self._settings.max_module_bytes:
            raise CompileFailed(
                f"the module has {len(module)} bytes, {self._settings.max_module_bytes} are allowed", size=len(module)
            )
        await self.pool.start()
        digest = (await asyncio.to_thread(hashlib.sha256, module)).digest()
        lock = self._being_compiled.setdefault(digest, asyncio.Lock())
        try:
            async with lock:
                stored = await self._find_stored(digest)
                if stored is None:
                    async with self._compiling:
                        stored = await compile_in_process(self._source, self._settings, module)
                    # Written first: the cache may close the descriptor of what it keeps at any time.
                    await asyncio.to_thread(self._cache.write, digest, self.pool.engine, stored)
                    self._cache.keep(digest, self.pool.engine, stored)
                    self._may_be_full = True
                self._make_room()
                return CompiledModule(digest=digest.hex(), facts=stored.facts)
        finally:
            if not lock.locked():
                self._being_compiled.pop(digest, None)

    def _make_room(self) -> None:
        """Make room in a task: the call that had something compiled does not wait for it."""
        if self._may_be_full and (self._making_room is None or self._making_room.done()):
            self._making_room = asyncio.create_task(self._make_room_now(), name="palyra-wasm-cache")

    async def _make_room_now(self) -> None:
        while self._may_be_full:
            self._may_be_full = False
            try:
                removed = await asyncio.to_thread(self._cache.make_room, self._cache.kept_files())
            except OSError as problem:
                _LOG.warning("compiled modules in the cache cannot be removed to make room: %s", problem.strerror)
            else:
                if removed.files:
                    _LOG.info(
                        "compiled modules not used for longest were removed from the cache: %d files, %d bytes",
                        removed.files,
                        removed.size,
                    )
                if removed.busy and not self._may_be_full:
                    # If this process is the one that writes, its compilation tries again afterwards.
                    self._may_be_full = True
                    if not self._being_compiled:
                        _LOG.warning(
                            "no room is made in the cache of compiled modules while another process writes there: "
                            "the next module that is asked for tries again"
                        )
                    return

    async def _find_stored(self, digest: bytes) -> Stored | None:
        stored = self._cache.in_memory(digest, self.pool.engine)
        if stored is None:
            stored = await asyncio.to_thread(self._cache.read, digest, self.pool.engine)
            if stored is not None:
                self._cache.keep(digest, self.pool.engine, stored)
        return stored

    async def run(
        self,
        module: CompiledModule,
        *,
        entry: str = RUN,
        tool: str = "",
        input: bytes = b"",  # noqa: A002 - what it is
        grants: CapabilityGrantSet = NOTHING_GRANTED,
        services: HostServices = _NO_SERVICES,
        limits: RuntimeLimits | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> WasmOutcome:
        """Run a guest to its end. Every error but ``Quota`` and ``NotCompiled`` carries usage and logs."""
        within = (limits or self._limits).within(self._limits)
        if len(input) > within.max_input_bytes:
            raise InputTooLarge(f"the input has {len(input)} bytes, {within.max_input_bytes} are allowed")
        entry_form(module.facts, entry)
        memory_bytes, table_elements = share_out(module.facts, within)
        digest = bytes.fromhex(module.digest)
        call = Call(
            digest=digest,
            entry=entry,
            tool=tool,
            input=input,
            counts=grants.counts(),
            timeout_us=max(1, timeout_ms) * _US_PER_MS,
            fuel=within.fuel_budget,
            memory_bytes=memory_bytes,
            table_elements=table_elements,
            max_output_bytes=within.max_output_bytes,
            max_log_bytes=within.max_log_bytes,
            max_log_lines=within.max_log_lines,
            max_log_line_chars=within.max_log_line_chars,
            max_host_calls=within.max_host_calls,
            max_request_bytes=within.max_request_bytes,
            host_call_timeout_ms=within.host_call_timeout_ms,
            clock_ms=grants.clock_ms,
            random_seed=grants.random_seed,
        )
        answers = HostAnswers(grants, services, within)
        if not self.pool.started:
            await self.pool.start()
        wait = min(self._settings.wait_ms, timeout_ms) / _MS_PER_SECOND
        link = await self.pool.take(digest, wait)
        done: Done | None = None
        try:
            if digest not in link.loaded:
                await self._load(link, digest)
            done = await self._converse(link, call, answers, timeout_ms)
        finally:
            if done is None or done.spent:
                self.pool.discard(link)
            else:
                self.pool.release(link)
        return _outcome(done, answers, services, within)

    async def _load(self, link: WorkerLink, digest: bytes) -> None:
        stored = await self._find_stored(digest)
        if stored is None:
            raise NotCompiled("the compiled module is neither in memory nor on disk")
        while len(link.loaded) >= self._settings.loaded_per_worker:
            oldest = next(iter(link.loaded))
            del link.loaded[oldest]
            await link.send(Unload(digest=oldest))
            stored = await self._find_stored(digest) or stored
        # Another call may make the cache close the original before the worker has it.
        descriptor = os.dup(stored.descriptor)
        frame = Load(digest=digest, form=stored.facts.form, size=stored.size, facts=stored.facts)
        try:
            async with asyncio.timeout(_LOAD_SECONDS):
                await link.send(frame, (descriptor,))
                answer = await link.receive()
        except (LinkBroken, TimeoutError) as problem:
            raise WorkerLost("the worker process ended while it loaded the module") from problem
        finally:
            os.close(descriptor)
        if not isinstance(answer, Loaded) or answer.digest != digest:
            raise WorkerLost("the worker process does not keep the protocol")
        if answer.problem:
            raise NotCompiled(f"the compiled module cannot be loaded: {render_text(answer.problem, 500)}")
        link.loaded[digest] = None

    async def _converse(self, link: WorkerLink, call: Call, answers: HostAnswers, timeout_ms: int) -> Done:
        """Send the call, answer the guest's questions, and return its end.

        The guest stops itself in time. A worker that does not is killed with its guest.
        """
        try:
            async with asyncio.timeout((timeout_ms + self._settings.kill_grace_ms) / _MS_PER_SECOND):
                await link.send(call)
                while True:
                    frame = await link.receive()
                    match frame:
                        case Done() if frame.fuel_used <= call.fuel:
                            return frame
                        case Ask():
                            with self.pool.park():
                                answer = await answers.answer(frame)
                            await link.send(answer)
                        case _:
                            raise LinkBroken("it does not keep the protocol")
        except TimeoutError:
            error = TimedOut(f"the guest did not end within {timeout_ms} ms and its worker was killed")
            error.usage = WasmUsage(duration_us=timeout_ms * _US_PER_MS, outside_calls=answers.count)
            raise error from None
        except LinkBroken as problem:
            lost = WorkerLost(f"the worker process was lost: {problem}")
            lost.usage = WasmUsage(outside_calls=answers.count)
            raise lost from None


def _outcome(done: Done, answers: HostAnswers, services: HostServices, limits: RuntimeLimits) -> WasmOutcome:
    usage = WasmUsage(
        fuel_used=done.fuel_used,
        peak_memory_bytes=done.peak_memory_bytes,
        duration_us=done.duration_us,
        host_calls=done.host_calls,
        outside_calls=answers.count,
    )
    most = limits.max_log_line_chars
    logs = tuple(_line(services, _level(level), text, most) for level, text in done.logs[: limits.max_log_lines])
    if done.kind:
        raise build_error(done.kind, _line(services, LOG_LEVELS[-1], done.message, most).text, usage, logs)
    if isinstance(done.output, bytes) and len(done.output) > limits.max_output_bytes:
        raise build_error("invalid_output", "the guest's output is longer than allowed", usage, logs)
    return WasmOutcome(output=done.output, usage=usage, logs=logs, logs_dropped=done.logs_dropped)


def _line(services: HostServices, level: str, text: str, most: int) -> LogLine:
    """Redact the text, then make it printable and cut it.

    Redaction comes first: a text that was escaped or shortened no longer spells the secrets in it. The worker cuts
    after one character more than is printed, so the mark it adds to a cut text is behind that.
    """
    was_cut = len(text) > most
    clean = services.log(LogLine(level=level, text=text[: most + 1]), was_cut=was_cut).text
    return LogLine(level=level, text=render_text(clean + CUT if was_cut else clean, most))


def _level(number: int) -> str:
    return LOG_LEVELS[number] if 0 <= number < len(LOG_LEVELS) else LOG_LEVELS[-1]
