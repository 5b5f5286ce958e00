"""Raw system calls for the attacking program, and the ways in which an attempt ends.

A probe that returns has got through, and what it returns is the evidence. ``OSError`` and ``Blocked`` mean that it was
stopped, ``NotApplicable`` that there was nothing here to try.
"""

import ctypes
import errno
import os
from typing import Any

Order = dict[str, Any]

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# What a call answers that was not let through. Anything else means that the kernel went to work on it.
REFUSED = (errno.EPERM, errno.ENOSYS, errno.EACCES)


class Blocked(Exception):
    pass


class NotApplicable(Exception):
    pass


def fail(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def number_of(order: Order, name: str) -> int:
    numbers = order["calls"]
    if name not in numbers:
        raise NotApplicable(f"this processor has no {name}")
    return int(numbers[name])


def call(number: int, *arguments: Any) -> int:
    """Make a system call, or raise OSError. Every argument is passed at full width."""
    passed = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    ctypes.set_errno(0)
    result = int(libc.syscall(ctypes.c_long(number), *passed))
    if result < 0:
        raise fail(f"call {number}")
    return result


def raw_arguments(spelled: list[Any]) -> list[Any]:
    """Convert text to a path or name, ``{"hex": …}`` to a buffer and ``null`` to no pointer. Numbers stay."""
    made: list[Any] = []
    for each in spelled:
        if isinstance(each, str):
            made.append(ctypes.c_char_p(each.encode()))
        elif isinstance(each, dict):
            data = bytes.fromhex(each["hex"])
            made.append(ctypes.create_string_buffer(data, len(data)))
        else:
            made.append(each)
    return made


def in_child(action: Any) -> int:
    """Run something in a forked child that always ends at once, and return its wait status."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(int(action()))
        except OSError as error:
            os._exit(100 + min(error.errno or 0, 100))
        finally:
            os._exit(99)
    return os.waitpid(child, 0)[1]
