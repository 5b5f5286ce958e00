"""The waiting process of ``native_start.s`` as an executable file image. Standard library only: the zygote loads it.

Exec gives up the memory of the process that waits for the order: a Python process has two thousand pages, this one has
three. Where it does not work (another processor, a kernel that executes no memory files), ``exec_child`` carries out
the same orders in Python, more slowly.
"""

import os
import platform
import struct

# The descriptor of the orders, above every number at which a program's descriptor is placed or moved.
ORDERS_DESCRIPTOR = 140
# The longest order: the kernel refuses longer arguments and environments before this.
BUFFER_BYTES = 6 * 1024 * 1024
# Descriptors that come with one order.
MAX_RECEIVED = 64

# Assembled from native_start.s; tests/unit/sandbox/test_native_start.py does it again and compares.
_X86_64 = bytes.fromhex(
    "b89d000000bf0400000031f60f05b89d000000bf01000000be090000000f05b82f000000bf8c000000be00006000ba00"
    "0000400f05bb0010600031ff4885c00f8e9e000000488b4b08488b73104801de4885c9740b48ad48011c0348ffc9ebf0"
    "4c8b63184901dc4531ed498b0424498b7c2408498b742410498b5424184d8b5424204d8b4424284d8b4c24304d8b7424"
    "380f054c89f1483d01f0ffff731f4885c978110fb6cdffc14901cd48c1e1064901ccebb631ff4885c0758aeb260fb6c9"
    "85c975e448f7d8504155b801000000bf8c0000004889e6ba100000000f05bf7f000000b8e70000000f05"
)

# mov $140, %edi
_ORDERS_NUMBER = b"\xbf%c\0\0\0"
# prctl(PR_SET_DUMPABLE, 0)
_FIRST_CALL_BYTES = 14

_TEXT_ADDRESS = 0x400000
_DATA_ADDRESS = 0x600000
_BUFFER_ADDRESS = 0x601000
_VECTOR_ADDRESS = _DATA_ADDRESS + 0x40
# A second msghdr, for a plan that ends by waiting for another: receiving changes the first.
SECOND_MESSAGE_ADDRESS = _DATA_ADDRESS + 0x80
THIRD_MESSAGE_ADDRESS = _DATA_ADDRESS + 0xC0
_CONTROL_ADDRESS = _DATA_ADDRESS + 0x100
_PAGE = 4096
_CONTROL_BYTES = 16 + 4 * MAX_RECEIVED

_EXECUTABLE, _MACHINE_X86_64, _VERSION = 2, 62, 1
_LOAD, _GNU_STACK = 1, 0x6474E551
_READ, _WRITE, _EXECUTE = 4, 2, 1
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_MFD_EXEC = 0x10


def image(orders: int = ORDERS_DESCRIPTOR, *, readable: bool = False) -> bytes:
    """Build an ELF file of two pages: the code, never writable, and the data, never executable.

    It reads its orders from descriptor ``orders``. With ``readable`` it begins after its first call, so that /proc can
    be read.
    """
    code = _X86_64.replace(_ORDERS_NUMBER % ORDERS_DESCRIPTOR, _ORDERS_NUMBER % orders)
    code_offset = _HEADER.size + 3 * _SEGMENT.size
    text_bytes = code_offset + len(code)
    header = _HEADER.pack(
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"),
        _EXECUTABLE,
        _MACHINE_X86_64,
        _VERSION,
        _TEXT_ADDRESS + code_offset + (_FIRST_CALL_BYTES if readable else 0),
        _HEADER.size,
        0,
        0,
        _HEADER.size,
        _SEGMENT.size,
        3,
        0,
        0,
        0,
    )
    segments = (
        _SEGMENT.pack(_LOAD, _READ | _EXECUTE, 0, _TEXT_ADDRESS, _TEXT_ADDRESS, text_bytes, text_bytes, _PAGE),
        _SEGMENT.pack(
            _LOAD,
            _READ | _WRITE,
            _PAGE,
            _DATA_ADDRESS,
            _DATA_ADDRESS,
            _PAGE,
            _BUFFER_ADDRESS - _DATA_ADDRESS + BUFFER_BYTES,
            _PAGE,
        ),
        _SEGMENT.pack(_GNU_STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 16),
    )
    # struct msghdr: no name, one vector, room for the descriptors, flags.
    message = struct.pack("<QQQQQQQ", 0, 0, _VECTOR_ADDRESS, 1, _CONTROL_ADDRESS, _CONTROL_BYTES, 0)
    vector = struct.pack("<QQ", _BUFFER_ADDRESS, BUFFER_BYTES)
    places = (
        (0, message),
        (_VECTOR_ADDRESS - _DATA_ADDRESS, vector),
        (SECOND_MESSAGE_ADDRESS - _DATA_ADDRESS, message),
        (THIRD_MESSAGE_ADDRESS - _DATA_ADDRESS, message),
    )
    data = bytearray(_PAGE)
    for place, content in places:
        data[place : place + len(content)] = content
    return b"".join((header, *segments, code)).ljust(_PAGE, b"\0") + data


def open_image() -> int | None:
    """Return a descriptor that can be executed, or ``None`` if this machine cannot use it."""
    try:
        descriptor = write_image(image())
    except OSError:
        return None
    if descriptor is not None and not _works(descriptor):
        os.close(descriptor)
        return None
    return descriptor


def _works(descriptor: int) -> bool:
    """Execute it once, with nothing to wait for. Some kernels and policies execute no memory files."""
    pid = os.fork()
    if pid == 0:
        try:
            closed, other = os.pipe()
            os.close(other)
            os.dup2(closed, ORDERS_DESCRIPTOR)
            os.execve(descriptor, [b"palyra-start"], {})  # noqa: S606 - the image itself, no shell
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return status == 0


def write_image(content: bytes) -> int | None:
    """Write the image into a memory file that can only be read and executed. ``open_image`` tries to execute it."""
    if platform.machine() != "x86_64":
        return None
    descriptor = -1
    for flags in (_MFD_EXEC, 0):
        try:
            descriptor = os.memfd_create("palyra-start", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
            break
        except OSError:
            continue
    if descriptor < 0:
        return None
    os.write(descriptor, content)
    # A file open for writing cannot be executed.
    readable = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    os.close(descriptor)
    return readable
