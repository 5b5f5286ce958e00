"""Frames between the daemon and a worker process, over a SEQPACKET socket pair.

A frame is MessagePack of one of the structs below, cut into packets: the first byte says whether more follow. Modules
do not travel here but in memory files whose descriptors come with the frame. The daemon reads a worker's frames as what
they may be, words of a guest that broke out: strict types, a bound on the length, and no descriptors.
"""

from typing import Annotated, Final

import msgspec

from palyra.limits import KIB, MIB
from palyra.wasm.domain.module_facts import ModuleFacts

# The version of these frames; worker and daemon are of one installation, so it is only ever compared.
VERSION: Final = 1
# Well below what a socket buffer takes in one piece with the kernel's ordinary settings.
PACKET_BYTES: Final = 64 * KIB
# The largest answer or output with what is around it.
MAX_FRAME_BYTES: Final = 10 * MIB
_LAST, _MORE = b"\0", b"\1"
# What a worker counts goes into ledgers and documents: no less than nothing, no more than JSON can say exactly.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
ExitCode = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Frame(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    pass


# From the daemon.


class Load(_Frame, frozen=True, tag=1):
    """The descriptor of the compiled module comes with it."""

    digest: bytes
    form: str
    size: int
    facts: ModuleFacts


class Unload(_Frame, frozen=True, tag=2):
    digest: bytes


class Call(_Frame, frozen=True, tag=3):
    """Runs a loaded module. Limits are those of ``RuntimeLimits``; memory and table bounds are already shared out."""

    digest: bytes
    entry: str
    tool: str
    input: bytes
    counts: tuple[int, int, int, int]
    timeout_us: int
    fuel: int
    memory_bytes: int
    table_elements: int
    max_output_bytes: int
    max_log_bytes: int
    max_log_lines: int
    max_log_line_chars: int
    max_host_calls: int
    max_request_bytes: int
    host_call_timeout_ms: int
    clock_ms: int
    random_seed: bytes


class Answer(_Frame, frozen=True, tag=4):
    """To one question. ``result`` is what the operation brings, in the form that ``Ask.operation`` implies."""

    number: int
    status: int
    result: bytes = b""


class Compile(_Frame, frozen=True, tag=5):
    """Two descriptors come with it: the module, and the file to write the compiled form into."""

    size: int
    room: int


# From the worker.


class Ready(_Frame, frozen=True, tag=20):
    version: int
    engine: str


class Loaded(_Frame, frozen=True, tag=21):
    """``problem`` is empty when the module can be called."""

    digest: bytes
    problem: str = ""


class Attachment(_Frame, frozen=True):
    secret: int
    header: str
    prefix: str


class Ask(_Frame, frozen=True, tag=22):
    """A host function that leaves the worker. Unused fields are empty."""

    number: int
    operation: str
    handle: int
    key: str = ""
    body: bytes = b""
    method: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    attachments: tuple[Attachment, ...] = ()


class Done(_Frame, frozen=True, tag=23):
    """``kind`` is empty for success, else the error's kind. ``spent`` says that the worker cannot take another call."""

    kind: str
    message: str
    output: bytes | ExitCode
    fuel_used: Count
    peak_memory_bytes: Count
    duration_us: Count
    host_calls: Count
    logs: tuple[tuple[int, str], ...]
    logs_dropped: Count
    spent: bool


class Compiled(_Frame, frozen=True, tag=24):
    """``kind`` is empty for success, else ``compile`` or ``link``."""

    kind: str
    message: str
    size: int
    facts: ModuleFacts | None


ToGuestProcess = Load | Unload | Call | Answer | Compile
FromGuestProcess = Ready | Loaded | Ask | Done | Compiled

_ENCODER: Final = msgspec.msgpack.Encoder()
_TO_GUEST_PROCESS: Final[msgspec.msgpack.Decoder[ToGuestProcess]] = msgspec.msgpack.Decoder(ToGuestProcess)
_FROM_GUEST_PROCESS: Final[msgspec.msgpack.Decoder[FromGuestProcess]] = msgspec.msgpack.Decoder(FromGuestProcess)


class BadFrame(Exception):
    """The other side does not speak this protocol (any more)."""


def packets(frame: ToGuestProcess | FromGuestProcess) -> list[bytes]:
    encoded = _ENCODER.encode(frame)
    if len(encoded) < PACKET_BYTES:
        return [_LAST + encoded]
    step = PACKET_BYTES - 1
    pieces = [encoded[start : start + step] for start in range(0, len(encoded), step)]
    return [*(_MORE + piece for piece in pieces[:-1]), _LAST + pieces[-1]]


class Assembler:
    """Puts packets together again. ``take`` answers with a whole frame's bytes, or None while more must come."""

    def __init__(self, most: int = MAX_FRAME_BYTES) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._length = 0

    def take(self, packet: bytes) -> bytes | None:
        mark, part = packet[:1], packet[1:]
        if mark == _LAST and not self._parts:
            return part
        self._parts.append(part)
        self._length += len(part)
        if mark not in (_LAST, _MORE) or not part or self._length > self._most:
            raise BadFrame("a packet that does not belong to a frame")
        if mark == _MORE:
            return None
        whole = b"".join(self._parts)
        self._parts, self._length = [], 0
        return whole


def read_to_guest_process(encoded: bytes) -> ToGuestProcess:
    return _TO_GUEST_PROCESS.decode(encoded)


def read_from_guest_process(encoded: bytes) -> FromGuestProcess:
    try:
        return _FROM_GUEST_PROCESS.decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadFrame("a frame that cannot be read") from problem
