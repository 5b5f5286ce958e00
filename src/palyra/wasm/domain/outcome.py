"""The ways a guest's call ends. Each error kind is a leaf with what the call used until then."""

import re
import unicodedata
from typing import Final

import msgspec

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, PalyraError, Unavailable

# From what the engine says of a guest's end to an error kind. Components report traps as text only.
#
# A backtrace repeats names that the guest chose, with line feeds in them if it likes. The engine's causes come behind
# it, so nothing but the last line of the last cause is taken for the engine's word.

# wasmtime's trap codes that have a kind of their own: interrupted by the epoch, and out of fuel.
_KINDS: Final[dict[int | None, str]] = {10: "timed_out", 11: "fuel_exhausted"}

_PHRASES: Final = (
    ("wasm trap: all fuel consumed", "fuel_exhausted"),
    ("wasm trap: interrupt", "timed_out"),
    ("exceeds memory limits", "memory_exceeded"),
    ("exceeds table limits", "memory_exceeded"),
    ("resource limit exceeded", "memory_exceeded"),
)
_IMPORTS: Final = ("unknown import", "component imports")
# Near its limit a guest that cannot grow usually traps in its allocator.
_FULL: Final = 7 / 8
_CAUSED_BY: Final = "\n\nCaused by:\n"
_NUMBER: Final = re.compile(r"\d+: ")


def kind_of_trap(code: int | None) -> str:
    return _KINDS.get(code, "trap")


def kind_of_error(text: str) -> str:
    cause = _last_cause(text)
    return next((kind for phrase, kind in _PHRASES if phrase in cause), "trap")


def with_memory(kind: str, peak: int, limit: int) -> str:
    """Count a trap of a guest whose memory was nearly full as want of memory."""
    return "memory_exceeded" if kind == "trap" and limit and peak >= limit * _FULL else kind


def cause(text: str) -> str:
    """Return the line that says why a guest ended, without the backtrace."""
    return _last_cause(text).removeprefix("wasm trap: ")


def _last_cause(text: str) -> str:
    """Causes are numbered where there are several, the deepest last."""
    line = text.rpartition(_CAUSED_BY)[2].strip().rpartition("\n")[2].strip()
    return line[found.end() :] if (found := _NUMBER.match(line)) else line


def is_about_imports(text: str) -> bool:
    """Whether a module was refused for something the host does not have."""
    return text.startswith(_IMPORTS)


def complaint(text: str) -> str:
    """Why a module is refused, in one line and in the engine's order: names in it never stand alone."""
    return " ".join(text.replace(_CAUSED_BY, ": ", 1).split())


CUT: Final = "…"
# Beside what Python calls printable: that excludes every space but the plain one.
_KEPT: Final = "\t"
_SPACES: Final = "Zs"


def render_text(text: str, limit: int) -> str:
    r"""Cut the text to ``limit`` characters, and write unfit ones as ``\\u{…}``."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(_visible(character) for character in cut)
    if len(cut) > limit or len(text) > limit:
        return cut[: max(0, limit - 1)] + CUT
    return cut


def _visible(character: str) -> str:
    if character in _KEPT or character.isprintable() or unicodedata.category(character) == _SPACES:
        return character
    return f"\\u{{{ord(character):x}}}"


class WasmUsage(msgspec.Struct, frozen=True, kw_only=True):
    fuel_used: int = 0
    peak_memory_bytes: int = 0
    duration_us: int = 0
    # Every host function the guest called, and those of them that left the worker.
    host_calls: int = 0
    outside_calls: int = 0


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    text: str


class WasmOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """``output`` is the text of an ordinary guest, or the exit code of the minimal form ``run: () -> i32``."""

    output: bytes | int
    usage: WasmUsage
    logs: tuple[LogLine, ...] = ()
    # Lines the guest wrote beyond its limits; they are gone.
    logs_dropped: int = 0


class _WithUsage(PalyraError):
    """Carries the resources that the guest used, and its log, until it ended badly."""

    usage: WasmUsage = WasmUsage()
    logs: tuple[LogLine, ...] = ()


class CompileFailed(InvalidInput):
    code = "wasm.compile"
    hint = "the module is not valid WebAssembly for this runtime, is too large, or takes too long to compile"


class LinkFailed(_WithUsage, InvalidInput):
    code = "wasm.link"
    hint = "modules import only from palyra:plugins/host-capabilities@0.1.0, palyra:skill/host@0.1.0 and WASI"


class MissingExport(_WithUsage, InvalidInput):
    code = "wasm.missing_export"
    hint = "export `run` in one of the three forms that the documentation of plugins gives, and `palyra_alloc`"


class Trapped(_WithUsage, Failed):
    code = "wasm.trap"
    hint = "the guest ended itself or broke a rule of WebAssembly; its log lines may say why"


class TimedOut(_WithUsage, LimitExceeded):
    code = "wasm.timed_out"
    hint = "the guest did not finish in time and was stopped"


class FuelExhausted(_WithUsage, LimitExceeded):
    code = "wasm.fuel_exhausted"
    hint = (
        "the guest used up its instructions; if the work is honest, raise quotas.fuel_budget in skill.toml, and"
        " wasm.max_fuel where that is less"
    )


class MemoryExceeded(_WithUsage, LimitExceeded):
    code = "wasm.memory_exceeded"
    hint = "the guest's memories or tables, summed up, do not fit its limit"


class CapabilityDenied(_WithUsage, Denied):
    code = "wasm.capability_denied"
    hint = "the capability is not granted to this plugin"


class InvalidOutput(_WithUsage, Failed):
    code = "wasm.invalid_output"
    hint = "the guest returned a place outside its memory, too much, or text that is not UTF-8 or not JSON"


class Quota(LimitExceeded):
    code = "wasm.quota"
    hint = "all places for guests are taken; try again"


class InputTooLarge(LimitExceeded):
    code = "wasm.input_too_large"
    hint = "a plugin takes one document of bounded size; put larger data into storage"


class GuestFailed(_WithUsage, Failed):
    """The guest ran well and said that its work failed."""

    code = "wasm.failed"
    hint = "the message is the guest's own; `palyra journal tail --call CALL` shows what it was refused, if anything"


class WorkerLost(_WithUsage, Unavailable):
    """The process that ran the guest ended under it."""

    code = "wasm.worker_lost"
    hint = "the worker process died, for want of memory perhaps; it is replaced, try again"


class NotCompiled(Unavailable):
    code = "wasm.not_compiled"
    hint = "the compiled form is gone; compile the module again"


# The kinds a worker may report. What it says beyond them counts as a lost worker.
REPORTED: dict[str, type[_WithUsage]] = {
    leaf.code.removeprefix("wasm."): leaf
    for leaf in (
        LinkFailed,
        MissingExport,
        Trapped,
        TimedOut,
        FuelExhausted,
        MemoryExceeded,
        InvalidOutput,
        GuestFailed,
    )
}


def build_error(kind: str, message: str, usage: WasmUsage, logs: tuple[LogLine, ...]) -> PalyraError:
    leaf = REPORTED.get(kind, WorkerLost)
    error = leaf(message)
    error.usage, error.logs = usage, logs
    return error
