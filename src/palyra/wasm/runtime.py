"""Tier A as the daemon sees it: compile a module once, run it as often as one likes, each time as if the first."""

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
from palyra.wasm.domain.module_facts import ModuleFacts, entry_form, shared_out
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
    reported,
    shown,
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
# Of modules, entry points and limits together; more are worked out anew.
_MAX_KNOWN_BOUNDS: Final = 1_024


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
        # What makes room on disk beside the calls, and whether it has to look: also at what earlier processes left.
        self._making_room: asyncio.Task[None] | None = None
        self._may_be_full = True
        self._known_bounds: dict[tuple[str, str, RuntimeLimits], tuple[int, int]] = {}

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
        """Starts workers ahead of the first call. Without it the first call does."""
        await self.pool.start()

    async def close(self) -> None:
        """Ends every worker and whatever runs in it."""
        await self.pool.close()
        await self._source.close()
        if self._making_room is not None:
            await self._making_room
        self._cache.close()

    async def compile(self, module: bytes) -> CompiledModule:
        """Quick for a module that was compiled before. Raises ``CompileFailed`` or ``LinkFailed``."""
        if len(module) > self._settings.max_module_bytes:
            raise CompileFailed(
                f"the module has {len(module)} bytes, {self._settings.max_module_bytes} are allowed", size=len(module)
            )
        await self.pool.start()
        digest = (await asyncio.to_thread(hashlib.sha256, module)).digest()
        lock = self._being_compiled.setdefault(digest, asyncio.Lock())
        try:
            async with lock:
                stored = await self._stored(digest)
                if stored is None:
                    async with self._compiling:
                        stored = await compile_in_process(self._source, self._settings, module)
                    # Before it is kept: what is kept may be let go at any time, and its descriptor with it.
                    await asyncio.to_thread(self._cache.write, digest, self.pool.engine, stored)
                    self._cache.keep(digest, self.pool.engine, stored)
                    self._may_be_full = True
                self._make_room()
                return CompiledModule(digest=digest.hex(), facts=stored.facts)
        finally:
            if not lock.locked():
                self._being_compiled.pop(digest, None)

    def _make_room(self) -> None:
        """Beside the call that had something compiled, which does not wait for it."""
        if self._may_be_full and (self._making_room is None or self._making_room.done()):
            self._making_room = asyncio.create_task(self._room_made(), name="palyra-wasm-cache")

    async def _room_made(self) -> None:
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
                    # Waited for is nobody. Where it is this process that writes, that looks again by itself.
                    self._may_be_full = True
                    if not self._being_compiled:
                        _LOG.warning(
                            "no room is made in the cache of compiled modules while another process writes there: "
                            "the next module that is asked for tries again"
                        )
                    return

    async def _stored(self, digest: bytes) -> Stored | None:
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
        """Runs a guest to its end. Every error but ``Quota`` and ``NotCompiled`` tells what was used and logged."""
        within = (limits or self._limits).within(self._limits)
        if len(input) > within.max_input_bytes:
            raise InputTooLarge(f"the input has {len(input)} bytes, {within.max_input_bytes} are allowed")
        memory_bytes, table_elements = self._bounds(module, entry, within)
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

    def _bounds(self, module: CompiledModule, entry: str, limits: RuntimeLimits) -> tuple[int, int]:
        """What each memory and each table may grow to. Calls of one module ask the same again and again."""
        asked = (module.digest, entry, limits)
        found = self._known_bounds.get(asked)
        if found is None:
            entry_form(module.facts, entry)
            found = shared_out(module.facts, limits)
            if len(self._known_bounds) >= _MAX_KNOWN_BOUNDS:
                self._known_bounds.clear()
            self._known_bounds[asked] = found
        return found

    async def _load(self, link: WorkerLink, digest: bytes) -> None:
        stored = await self._stored(digest)
        if stored is None:
            raise NotCompiled("the compiled module is neither in memory nor on disk")
        while len(link.loaded) >= self._settings.loaded_per_worker:
            oldest = next(iter(link.loaded))
            del link.loaded[oldest]
            await link.send(Unload(digest=oldest))
            stored = await self._stored(digest) or stored
        # Another call may make the cache let go of the original while this one is on its way.
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
            raise NotCompiled(f"the compiled module cannot be loaded: {shown(answer.problem, 500)}")
        link.loaded[digest] = None

    async def _converse(self, link: WorkerLink, call: Call, answers: HostAnswers, timeout_ms: int) -> Done:
        """From the call to its end, with the guest's questions between. The guest stops itself in time; who does not is
        killed with its worker."""
        try:
            async with asyncio.timeout((timeout_ms + self._settings.kill_grace_ms) / _MS_PER_SECOND):
                await link.send(call)
                while True:
                    frame = await link.receive()
                    match frame:
                        case Done() if frame.fuel_used <= call.fuel:
                            return frame
                        case Ask():
                            with self.pool.parked():
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
        raise reported(done.kind, _line(services, LOG_LEVELS[-1], done.message, most).text, usage, logs)
    if isinstance(done.output, bytes) and len(done.output) > limits.max_output_bytes:
        raise reported("invalid_output", "the guest's output is longer than allowed", usage, logs)
    return WasmOutcome(output=done.output, usage=usage, logs=logs, logs_dropped=done.logs_dropped)


def _line(services: HostServices, level: str, text: str, most: int) -> LogLine:
    """Redacted first: what was made fit to be shown, or shortened once more, no longer spells the secrets in it. The
    worker cuts after one character more than is shown, and what it added to a text it cut is behind that."""
    was_cut = len(text) > most
    clean = services.log(LogLine(level=level, text=text[: most + 1]), was_cut=was_cut).text
    return LogLine(level=level, text=shown(clean + CUT if was_cut else clean, most))


def _level(number: int) -> str:
    return LOG_LEVELS[number] if 0 <= number < len(LOG_LEVELS) else LOG_LEVELS[-1]
