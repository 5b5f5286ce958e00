"""WASI preview 1 for core modules, as far as ordinary toolchains' output needs it to link and start.

There are no files, no arguments, no environment and no sockets. The clock stands still at the grant's time and its
monotonic side moves a microsecond with each reading; random bytes come from the grant's seed; what is printed becomes
log lines. Everything else answers that it is not there.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from palyra.wasm.abi import Status
from palyra.wasm.core_linker import CoreLinker, Desk, Implementation
from palyra.wasm.guest_clock import GuestClock
from palyra.wasm.host_calls import INFO, WARNING
from palyra.wasm.limits import MAX_PRINT_BYTES
from palyra.wasm.random_stream import RandomStream

MODULE: Final = "wasi_snapshot_preview1"

_SUCCESS, _BADF, _FAULT, _INVAL, _NOSYS, _SPIPE = 0, 8, 21, 28, 52, 70
_STANDARD: Final = (0, 1, 2)
_LEVELS: Final = {1: INFO, 2: WARNING}
_CHARACTER_DEVICE: Final = 2
_REALTIME: Final = 0
_CLOCKS: Final = 4
_MAX_VECTORS: Final = 64
_MAX_RANDOM_BYTES: Final = 64 * 1024
_RESOLUTION_NS: Final = 1_000

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
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._memory = desk.memory
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
        """Standard input is empty."""
        return self._put(read_at, bytes(4)) if descriptor == 0 else _BADF

    def _fd_seek(self, descriptor: int, _offset: int, _whence: int, _place: int) -> int:
        return _SPIPE if descriptor in _STANDARD else _BADF

    def _fd_write(self, descriptor: int, vectors: int, count: int, written_at: int) -> int:
        """Takes at most ``MAX_PRINT_BYTES`` at once; callers write the rest again."""
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
        if self._desk.calls is not None:
            self._desk.calls.print(level, piece)
        return self._put(written_at, len(piece).to_bytes(4, "little"))

    def _random_get(self, place: int, length: int) -> int:
        if length > _MAX_RANDOM_BYTES:
            return _INVAL
        return self._put(place, self.random.take(length))

    def _proc_exit(self, code: int) -> None:
        self._desk.ended = f"the guest ended itself with code {code}"

    def _abort(self, _message: int, _file: int, line: int, column: int) -> None:
        self._desk.ended = f"the guest aborted at line {line}, column {column}"


def _refuse(error: int, *_arguments: int) -> int:
    return error


def _succeed(*_arguments: int) -> int:
    return _SUCCESS
