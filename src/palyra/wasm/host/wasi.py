"""WASI for guests: preview 2 for components, preview 1 for core modules.

There are no files, no arguments, no environment and no sockets. The wall clock stands still at the grant's time, the
monotonic one moves a microsecond with each reading, and random bytes come from the grant's seed. Printed text becomes
log lines.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import wasmtime
from wasmtime import component as wit

from palyra.wasm.domain.host_interface import Status
from palyra.wasm.domain.limits import MAX_PRINT_BYTES
from palyra.wasm.host.core_functions import ActiveCall, CoreLinker, Implementation
from palyra.wasm.host.host_calls import INFO, WARNING

_NS_PER_MS: Final = 1_000_000
_STEP_NS: Final = 1_000
_U64_MOST: Final = (1 << 64) - 1


class GuestClock:
    """A real clock would make runs differ and tell a guest how long its neighbours take."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ns = min(max(wall_ms, 0) * _NS_PER_MS, _U64_MOST)
        self._steps = 0

    def monotonic_ns(self) -> int:
        self._steps += 1
        return self._steps * _STEP_NS


class RandomStream:
    """The random bytes that a guest sees: the same in every run with the same seed."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._block = 0

    def take(self, length: int) -> bytes:
        """Read a stream of its own, named by the seed and the number of readings before."""
        self._block += 1
        named = b"palyra wasm random v1\0" + self._block.to_bytes(8, "little") + self._seed
        return hashlib.shake_256(named).digest(length)


ComponentFunction = Callable[..., Any]

_STREAM_ERROR: Final = "variant{last-operation-failed(own), closed}"
_DATETIME: Final = "record{seconds: u64, nanoseconds: u32}"
_MAX_RANDOM_BYTES: Final = 64 * 1024
_MAX_POLLED: Final = 1_024
_NS_PER_SECOND: Final = 1_000_000_000
_RESOLUTION_NS: Final = 1_000
_OUTPUT_LEVELS: Final = {1: INFO, 2: WARNING}
_INPUT, _OUTPUT, _ERRORS = 0, 1, 2
# Errors of the sockets' functions are long lists of which only one name matters here.
ANY_ERRORS: Final = "enum{*}"
_NO_SOCKETS: Final = "not-supported"
_OK: Final = wit.Variant("ok")


def resource_number(name: str, known: dict[str, int]) -> int:
    """Return the number of a resource, which is the same in every interface that names it."""
    return known.setdefault(name, len(known) + 1)


class WasiComponents:
    """Preview 2. Functions that a component imports beyond these end it when they are called."""

    def __init__(self, active: ActiveCall) -> None:
        self._active = active
        self._resources: dict[str, int] = {}
        self._clock = GuestClock(0)
        self._random = RandomStream(b"")

    def begin(self, clock_ms: int, random_seed: bytes) -> None:
        self._clock = GuestClock(clock_ms)
        self._random = RandomStream(random_seed)

    def resource(self, name: str) -> wit.ResourceType:
        return wit.ResourceType.host(resource_number(name, self._resources))

    def table(self) -> dict[tuple[str, str], tuple[str, ComponentFunction]]:
        """Map interface and name to the type that the import must have, and the function."""
        read = f"(borrow, u64) -> result<list<u8>, {_STREAM_ERROR}>"
        write, flush = f"(borrow, list<u8>) -> result<_, {_STREAM_ERROR}>", f"(borrow) -> result<_, {_STREAM_ERROR}>"
        make_socket = f"(enum{{ipv4, ipv6}}) -> result<own, {ANY_ERRORS}>"
        functions: dict[tuple[str, str], tuple[str, ComponentFunction]] = {
            ("wasi:cli/environment", "get-environment"): ("() -> list<tuple<string, string>>", _empty),
            ("wasi:cli/environment", "get-arguments"): ("() -> list<string>", _empty),
            ("wasi:cli/environment", "initial-cwd"): ("() -> option<string>", _nothing),
            ("wasi:cli/exit", "exit"): ("(result<_, _>)", self._exit),
            ("wasi:cli/stdin", "get-stdin"): ("() -> own", self._maker("input-stream", _INPUT)),
            ("wasi:cli/stdout", "get-stdout"): ("() -> own", self._maker("output-stream", _OUTPUT)),
            ("wasi:cli/stderr", "get-stderr"): ("() -> own", self._maker("output-stream", _ERRORS)),
            ("wasi:cli/terminal-stdin", "get-terminal-stdin"): ("() -> option<own>", _nothing),
            ("wasi:cli/terminal-stdout", "get-terminal-stdout"): ("() -> option<own>", _nothing),
            ("wasi:cli/terminal-stderr", "get-terminal-stderr"): ("() -> option<own>", _nothing),
            ("wasi:io/streams", "[method]input-stream.read"): (read, _closed),
            ("wasi:io/streams", "[method]input-stream.blocking-read"): (read, _closed),
            ("wasi:io/streams", "[method]input-stream.subscribe"): ("(borrow) -> own", self._pollable),
            ("wasi:io/streams", "[method]output-stream.check-write"): (
                f"(borrow) -> result<u64, {_STREAM_ERROR}>",
                _room,
            ),
            ("wasi:io/streams", "[method]output-stream.write"): (write, self._write),
            ("wasi:io/streams", "[method]output-stream.blocking-write-and-flush"): (write, self._write),
            ("wasi:io/streams", "[method]output-stream.flush"): (flush, _done),
            ("wasi:io/streams", "[method]output-stream.blocking-flush"): (flush, _done),
            ("wasi:io/streams", "[method]output-stream.subscribe"): ("(borrow) -> own", self._pollable),
            ("wasi:io/poll", "[method]pollable.block"): ("(borrow)", _release_resource),
            ("wasi:io/poll", "[method]pollable.ready"): ("(borrow) -> bool", _ready),
            ("wasi:io/poll", "poll"): ("(list<borrow>) -> list<u32>", _poll),
            ("wasi:clocks/monotonic-clock", "now"): ("() -> u64", lambda _store: self._clock.monotonic_ns()),
            ("wasi:clocks/monotonic-clock", "resolution"): ("() -> u64", lambda _store: _RESOLUTION_NS),
            ("wasi:clocks/monotonic-clock", "subscribe-instant"): ("(u64) -> own", self._pollable),
            ("wasi:clocks/monotonic-clock", "subscribe-duration"): ("(u64) -> own", self._pollable),
            ("wasi:clocks/wall-clock", "now"): (f"() -> {_DATETIME}", lambda _store: _datetime(self._clock.wall_ns)),
            ("wasi:clocks/wall-clock", "resolution"): (f"() -> {_DATETIME}", lambda _store: _datetime(_RESOLUTION_NS)),
            ("wasi:random/random", "get-random-bytes"): ("(u64) -> list<u8>", self._random_bytes),
            ("wasi:random/random", "get-random-u64"): ("() -> u64", self._random_number),
            ("wasi:random/insecure", "get-insecure-random-bytes"): ("(u64) -> list<u8>", self._random_bytes),
            ("wasi:random/insecure", "get-insecure-random-u64"): ("() -> u64", self._random_number),
            ("wasi:random/insecure-seed", "insecure-seed"): ("() -> tuple<u64, u64>", self._seed),
            ("wasi:filesystem/preopens", "get-directories"): ("() -> list<tuple<own, string>>", _empty),
            ("wasi:sockets/instance-network", "instance-network"): ("() -> own", self._maker("network", 0)),
            ("wasi:sockets/tcp-create-socket", "create-tcp-socket"): (make_socket, _no_socket),
            ("wasi:sockets/udp-create-socket", "create-udp-socket"): (make_socket, _no_socket),
        }
        return {key: (type_, self._count_calls(function)) for key, (type_, function) in functions.items()}

    def _count_calls(self, function: ComponentFunction) -> ComponentFunction:
        """Count each call. Few of these types have a status, so a guest that calls too many is ended."""

        def counting(store: Any, *arguments: Any) -> Any:
            if self._active.calls is None or not self._active.calls.enter():
                raise wasmtime.WasmtimeError("too many calls of host functions")
            return function(store, *arguments)

        return counting

    def _maker(self, name: str, representation: int) -> ComponentFunction:
        number = resource_number(name, self._resources)
        return lambda _store: wit.ResourceHost.own(representation, number)

    def _pollable(self, store: Any, subject: Any) -> wit.ResourceHost:
        _release_resource(store, subject)
        return wit.ResourceHost.own(0, resource_number("pollable", self._resources))

    def _exit(self, _store: Any, _status: Any) -> None:
        self._active.ended = "the guest ended itself"
        # Passed through the engine as the guest's trap; nothing is kept in a global for this class of error.
        raise wasmtime.WasmtimeError(self._active.ended)

    def _write(self, store: Any, stream: wit.ResourceAny, piece: bytes) -> wit.Variant:
        # Looking at what is borrowed gives it back too.
        level = _OUTPUT_LEVELS.get(stream.to_host(store).rep, INFO)
        if self._active.calls is not None:
            self._active.calls.print(level, piece)
        return _OK

    def _random_bytes(self, _store: Any, length: int) -> bytes:
        if length > _MAX_RANDOM_BYTES:
            raise wasmtime.WasmtimeError("too many random bytes at once")
        return self._random.take(length)

    def _random_number(self, _store: Any) -> int:
        return int.from_bytes(self._random.take(8), "little")

    def _seed(self, store: Any) -> tuple[int, int]:
        return self._random_number(store), self._random_number(store)


def _release_resource(store: Any, subject: Any) -> None:
    """Give a borrowed resource back, which must happen before the function returns."""
    if isinstance(subject, wit.ResourceAny):
        subject.drop(store)


def _empty(_store: Any) -> list[Any]:
    return []


def _nothing(_store: Any) -> None:
    return None


def _done(store: Any, subject: Any) -> wit.Variant:
    _release_resource(store, subject)
    return _OK


def _ready(store: Any, subject: Any) -> bool:
    _release_resource(store, subject)
    return True


def _closed(store: Any, stream: Any, _length: int) -> wit.Variant:
    _release_resource(store, stream)
    return wit.Variant("err", wit.Variant("closed"))


def _room(store: Any, stream: Any) -> wit.Variant:
    _release_resource(store, stream)
    return wit.Variant("ok", MAX_PRINT_BYTES)


def _poll(store: Any, subjects: list[Any]) -> list[int]:
    """Answer that everything is ready: nothing ever waits."""
    for subject in subjects:
        _release_resource(store, subject)
    return list(range(min(len(subjects), _MAX_POLLED)))


def _no_socket(_store: Any, _family: str) -> wit.Variant:
    return wit.Variant("err", _NO_SOCKETS)


def _datetime(nanoseconds: int) -> wit.Record:
    moment = wit.Record()
    moment.seconds, moment.nanoseconds = divmod(nanoseconds, _NS_PER_SECOND)  # type: ignore[attr-defined]
    return moment


MODULE: Final = "wasi_snapshot_preview1"

_SUCCESS, _BADF, _FAULT, _INVAL, _NOSYS, _SPIPE = 0, 8, 21, 28, 52, 70
_STANDARD: Final = (0, 1, 2)
_LEVELS: Final = {1: INFO, 2: WARNING}
_CHARACTER_DEVICE: Final = 2
_REALTIME: Final = 0
_CLOCKS: Final = 4
_MAX_VECTORS: Final = 64

_I: Final = "(i32)"
TYPES: Final[dict[str, str]] = {
    "args_get": "(i32 i32)",
    "args_sizes_get": "(i32 i32)",
    "environ_get": "(i32 i32)",
    "environ_sizes_get": "(i32 i32)",
    "clock_res_get": "(i32 i32)",
    "clock_time_get": "(i32 i64 i32)",
    "fd_advise": "(i32 i64 i64 i32)",
    "fd_allocate": "(i32 i64 i64)",
    "fd_close": _I,
    "fd_datasync": _I,
    "fd_fdstat_get": "(i32 i32)",
    "fd_fdstat_set_flags": "(i32 i32)",
    "fd_fdstat_set_rights": "(i32 i64 i64)",
    "fd_filestat_get": "(i32 i32)",
    "fd_filestat_set_size": "(i32 i64)",
    "fd_filestat_set_times": "(i32 i64 i64 i32)",
    "fd_pread": "(i32 i32 i32 i64 i32)",
    "fd_prestat_get": "(i32 i32)",
    "fd_prestat_dir_name": "(i32 i32 i32)",
    "fd_pwrite": "(i32 i32 i32 i64 i32)",
    "fd_read": "(i32 i32 i32 i32)",
    "fd_readdir": "(i32 i32 i32 i64 i32)",
    "fd_renumber": "(i32 i32)",
    "fd_seek": "(i32 i64 i32 i32)",
    "fd_sync": _I,
    "fd_tell": "(i32 i32)",
    "fd_write": "(i32 i32 i32 i32)",
    "path_create_directory": "(i32 i32 i32)",
    "path_filestat_get": "(i32 i32 i32 i32 i32)",
    "path_filestat_set_times": "(i32 i32 i32 i32 i64 i64 i32)",
    "path_link": "(i32 i32 i32 i32 i32 i32 i32)",
    "path_open": "(i32 i32 i32 i32 i32 i64 i64 i32 i32)",
    "path_readlink": "(i32 i32 i32 i32 i32 i32)",
    "path_remove_directory": "(i32 i32 i32)",
    "path_rename": "(i32 i32 i32 i32 i32 i32)",
    "path_symlink": "(i32 i32 i32 i32 i32)",
    "path_unlink_file": "(i32 i32 i32)",
    "poll_oneoff": "(i32 i32 i32 i32)",
    "proc_exit": "(i32) -> ()",
    "proc_raise": _I,
    "random_get": "(i32 i32)",
    "sched_yield": "()",
    "sock_accept": "(i32 i32 i32)",
    "sock_recv": "(i32 i32 i32 i32 i32 i32)",
    "sock_send": "(i32 i32 i32 i32 i32)",
    "sock_shutdown": "(i32 i32)",
}
# What AssemblyScript's output calls before it gives up.
ASSEMBLYSCRIPT: Final = "env"
ASSEMBLYSCRIPT_TYPES: Final = {"abort": "(i32 i32 i32 i32) -> ()"}


class WasiPreview1:
    """Preview 1, as far as ordinary toolchains' output needs it to link and start. The rest answers with an error."""

    def __init__(self, active: ActiveCall) -> None:
        self._active = active
        self._memory = active.memory
        self.clock = GuestClock(0)
        self.random = RandomStream(b"")

    def begin(self, clock_ms: int, random_seed: bytes) -> None:
        self.clock = GuestClock(clock_ms)
        self.random = RandomStream(random_seed)

    def define(self, linker: CoreLinker) -> None:
        types = {name: kind if "->" in kind else f"{kind} -> (i32)" for name, kind in TYPES.items()}
        linker.define(MODULE, types, self._table(), too_often=_NOSYS, faulty=_NOSYS)
        linker.define(ASSEMBLYSCRIPT, ASSEMBLYSCRIPT_TYPES, {"abort": self._abort}, too_often=_NOSYS, faulty=_NOSYS)

    def _table(self) -> Mapping[str, Implementation]:
        table: dict[str, Implementation] = {name: partial(_refuse, _NOSYS) for name in TYPES}
        for name in TYPES:
            if name.startswith(("fd_", "path_", "sock_")):
                table[name] = partial(_refuse, _BADF)
        return table | {
            "args_get": _succeed,
            "args_sizes_get": self._two_zeros,
            "environ_get": _succeed,
            "environ_sizes_get": self._two_zeros,
            "clock_res_get": self._clock_res_get,
            "clock_time_get": self._clock_time_get,
            "fd_close": self._fd_close,
            "fd_fdstat_get": self._fd_fdstat_get,
            "fd_read": self._fd_read,
            "fd_seek": self._fd_seek,
            "fd_write": self._fd_write,
            "proc_exit": self._proc_exit,
            "random_get": self._random_get,
            "sched_yield": _succeed,
        }

    def _put(self, place: int, data: bytes) -> int:
        return _SUCCESS if self._memory.write(place, data) is Status.OK else _FAULT

    def _two_zeros(self, first: int, second: int) -> int:
        return self._put(first, bytes(4)) or self._put(second, bytes(4))

    def _clock_res_get(self, clock: int, place: int) -> int:
        return self._put(place, _RESOLUTION_NS.to_bytes(8, "little")) if clock < _CLOCKS else _INVAL

    def _clock_time_get(self, clock: int, _precision: int, place: int) -> int:
        if clock >= _CLOCKS:
            return _INVAL
        moment = self.clock.wall_ns if clock == _REALTIME else self.clock.monotonic_ns()
        return self._put(place, moment.to_bytes(8, "little"))

    def _fd_close(self, descriptor: int) -> int:
        return _SUCCESS if descriptor in _STANDARD else _BADF

    def _fd_fdstat_get(self, descriptor: int, place: int) -> int:
        if descriptor not in _STANDARD:
            return _BADF
        return self._put(place, bytes([_CHARACTER_DEVICE]) + bytes(23))

    def _fd_read(self, descriptor: int, _vectors: int, _count: int, read_at: int) -> int:
        """Answer that standard input is empty."""
        return self._put(read_at, bytes(4)) if descriptor == 0 else _BADF

    def _fd_seek(self, descriptor: int, _offset: int, _whence: int, _place: int) -> int:
        return _SPIPE if descriptor in _STANDARD else _BADF

    def _fd_write(self, descriptor: int, vectors: int, count: int, written_at: int) -> int:
        """Take at most ``MAX_PRINT_BYTES`` at once; callers write the rest again."""
        level = _LEVELS.get(descriptor)
        if level is None:
            return _BADF
        table = self._memory.read(vectors, min(count, _MAX_VECTORS) * 8, _MAX_VECTORS * 8)
        if isinstance(table, Status):
            return _FAULT
        piece = b""
        for at in range(0, len(table), 8):
            place, length = (
                int.from_bytes(table[at : at + 4], "little"),
                int.from_bytes(table[at + 4 : at + 8], "little"),
            )
            part = self._memory.read(place, min(length, MAX_PRINT_BYTES - len(piece)), MAX_PRINT_BYTES)
            if isinstance(part, Status):
                return _FAULT
            piece += part
            if len(part) < length:
                break
        if self._active.calls is not None:
            self._active.calls.print(level, piece)
        return self._put(written_at, len(piece).to_bytes(4, "little"))

    def _random_get(self, place: int, length: int) -> int:
        if length > _MAX_RANDOM_BYTES:
            return _INVAL
        return self._put(place, self.random.take(length))

    def _proc_exit(self, code: int) -> None:
        self._active.ended = f"the guest ended itself with code {code}"

    def _abort(self, _message: int, _file: int, line: int, column: int) -> None:
        self._active.ended = f"the guest aborted at line {line}, column {column}"


def _refuse(error: int, *_arguments: int) -> int:
    return error


def _succeed(*_arguments: int) -> int:
    return _SUCCESS
