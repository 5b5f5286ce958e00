"""Plans for the first process of a sandbox, and what that process reads in them."""

import struct

from palyra.sandbox.domain.launch_spec import LaunchSpec
from palyra.sandbox.launch.start_plan import StartPlan, plan_start
from palyra.sandbox.layers.syscall_table import SYSCALLS

ORDERS = 140


NAMES = {number: name for name, number in SYSCALLS["x86_64"].items()}


def plan(spec: LaunchSpec, **changes: object) -> StartPlan:
    options = {"machine": "x86_64", "landlock_abi": 7, "rlimits": (), "orders": ORDERS, **changes}
    return plan_start(spec, **options)  # type: ignore[arg-type]


def decoded(encoded: bytes) -> list[tuple[str, list[int], int]]:
    """As the executor sees it: after the relocations, with the buffer at address 0."""
    _, relocations, relocations_at, records_at = struct.unpack_from("<4Q", encoded)
    slots = {struct.unpack_from("<Q", encoded, relocations_at + 8 * n)[0] for n in range(relocations)}
    assert all(slot % 8 == 0 and slot < relocations_at for slot in slots)
    records, place = [], records_at
    while True:
        number, *arguments, control = struct.unpack_from("<8Q", encoded, place)
        records.append((NAMES[number], arguments, control))
        place += 64
        if NAMES[number] in ("execve", "recvmsg"):
            return records


def text_at(encoded: bytes, offset: int) -> bytes:
    return encoded[offset : encoded.index(b"\0", offset)]
