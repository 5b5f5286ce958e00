"""Performs one named attempt and prints one line of JSON about it.

It does no harm where it gets through: it changes only what was laid out for it as bait, never writes to a file of the
system, and never sends anything to an address outside loopback.
"""

import ctypes
import errno
import json
import sys
from typing import Any

from . import files, kernel, outside, resources
from .calls import Blocked, NotApplicable, Order, libc

PR_SET_NAME = 15
MAX_EVIDENCE = 300


def hello(_: Order) -> str:
    """Show that the program runs here at all."""
    return "here"


PROBES = {**files.PROBES, **kernel.PROBES, **outside.PROBES, **resources.PROBES, "hello": hello}


def attempt(order: Order) -> dict[str, Any]:
    try:
        got = PROBES[order["probe"]](order)
    except Blocked as blocked:
        return {"escaped": False, "evidence": str(blocked), "errno": None}
    except NotApplicable as reason:
        return {"escaped": None, "evidence": str(reason), "errno": None}
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        said = error.strerror or str(error)
        where = f" ({error.filename})" if error.filename else ""
        return {"escaped": False, "evidence": f"{name} {said}{where}", "errno": name}
    except MemoryError:
        return {"escaped": False, "evidence": "ENOMEM while allocating", "errno": "ENOMEM"}
    return {"escaped": True, "evidence": got, "errno": None}


def main() -> None:
    order = json.loads(sys.stdin.buffer.read())
    # The runner outside finds what is left of this process and of its children by this name.
    libc.prctl(PR_SET_NAME, ctypes.c_char_p(order["comm"].encode()), 0, 0, 0)
    answer = attempt(order)
    answer["evidence"] = str(answer["evidence"])[:MAX_EVIDENCE]
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
