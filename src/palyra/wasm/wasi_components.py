"""WASI preview 2 for components: what ``wasi_stub`` is for core modules, as values.

Functions a component imports beyond these end it when they are called. Each has the type it must be imported under:
``wit_types`` says why.
"""

from collections.abc import Callable
from typing import Any, Final

import wasmtime
from wasmtime import component as wit

from palyra.wasm.core_linker import Desk
from palyra.wasm.guest_clock import GuestClock
from palyra.wasm.host_calls import INFO, WARNING
from palyra.wasm.limits import MAX_PRINT_BYTES
from palyra.wasm.random_stream import RandomStream

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
    """Resources are the same thing in every interface that names them."""
    return known.setdefault(name, len(known) + 1)


class WasiComponents:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._resources: dict[str, int] = {}
        self._clock = GuestClock(0)
        self._random = RandomStream(b"")

    def begin(self, clock_ms: int, random_seed: bytes) -> None:
        self._clock = GuestClock(clock_ms)
        self._random = RandomStream(random_seed)

    def resource(self, name: str) -> wit.ResourceType:
        return wit.ResourceType.host(resource_number(name, self._resources))

    def table(self) -> dict[tuple[str, str], tuple[str, ComponentFunction]]:
        """Interface and name, to type and function."""
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
            ("wasi:io/poll", "[method]pollable.block"): ("(borrow)", _blocked),
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
        return {key: (type_, self._counted(function)) for key, (type_, function) in functions.items()}

    def _counted(self, function: ComponentFunction) -> ComponentFunction:
        """Few of these types have a status: a guest that calls too many is ended."""

        def counted(store: Any, *arguments: Any) -> Any:
            if self._desk.calls is None or not self._desk.calls.enter():
                raise wasmtime.WasmtimeError("too many calls of host functions")
            return function(store, *arguments)

        return counted

    def _maker(self, name: str, representation: int) -> ComponentFunction:
        number = resource_number(name, self._resources)
        return lambda _store: wit.ResourceHost.own(representation, number)

    def _pollable(self, store: Any, subject: Any) -> wit.ResourceHost:
        _let_go(store, subject)
        return wit.ResourceHost.own(0, resource_number("pollable", self._resources))

    def _exit(self, _store: Any, _status: Any) -> None:
        self._desk.ended = "the guest ended itself"
        # Passed through the engine as the guest's trap; nothing is kept in a global for this class of error.
        raise wasmtime.WasmtimeError(self._desk.ended)

    def _write(self, store: Any, stream: wit.ResourceAny, piece: bytes) -> wit.Variant:
        # Looking at what is borrowed gives it back too.
        level = _OUTPUT_LEVELS.get(stream.to_host(store).rep, INFO)
        if self._desk.calls is not None:
            self._desk.calls.print(level, piece)
        return _OK

    def _random_bytes(self, _store: Any, length: int) -> bytes:
        if length > _MAX_RANDOM_BYTES:
            raise wasmtime.WasmtimeError("too many random bytes at once")
        return self._random.take(length)

    def _random_number(self, _store: Any) -> int:
        return int.from_bytes(self._random.take(8), "little")

    def _seed(self, store: Any) -> tuple[int, int]:
        return self._random_number(store), self._random_number(store)


def _let_go(store: Any, subject: Any) -> None:
    """A borrowed resource must be given back before the function returns."""
    if isinstance(subject, wit.ResourceAny):
        subject.drop(store)


def _empty(_store: Any) -> list[Any]:
    return []


def _nothing(_store: Any) -> None:
    return None


def _blocked(store: Any, subject: Any) -> None:
    _let_go(store, subject)


def _done(store: Any, subject: Any) -> wit.Variant:
    _let_go(store, subject)
    return _OK


def _ready(store: Any, subject: Any) -> bool:
    _let_go(store, subject)
    return True


def _closed(store: Any, stream: Any, _length: int) -> wit.Variant:
    _let_go(store, stream)
    return wit.Variant("err", wit.Variant("closed"))


def _room(store: Any, stream: Any) -> wit.Variant:
    _let_go(store, stream)
    return wit.Variant("ok", MAX_PRINT_BYTES)


def _poll(store: Any, subjects: list[Any]) -> list[int]:
    """Nothing ever waits: everything is ready."""
    for subject in subjects:
        _let_go(store, subject)
    return list(range(min(len(subjects), _MAX_POLLED)))


def _no_socket(_store: Any, _family: str) -> wit.Variant:
    return wit.Variant("err", _NO_SOCKETS)


def _datetime(nanoseconds: int) -> wit.Record:
    moment = wit.Record()
    moment.seconds, moment.nanoseconds = divmod(nanoseconds, _NS_PER_SECOND)  # type: ignore[attr-defined]
    return moment
