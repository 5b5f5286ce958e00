"""From rules to a seccomp BPF program: data in, bytes out, nothing else.

The call number is found by halving, not one by one: the kernel runs the program for every call number when it is
installed, and once for each call after that. Calls of another interface (32-bit, x32) never reach the rules.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from palyra.errors import InvalidInput
from palyra.sandbox.layers.seccomp_rules import PRETENDED, Clause, Rule, rules
from palyra.sandbox.layers.syscall_table import AUDIT_ARCH, SYSCALLS, X32_BIT

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_JUMP: Final = 0x05  # BPF_JMP | BPF_JA
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06

RET_KILL_PROCESS: Final = 0x80000000
RET_ERRNO: Final = 0x00050000
RET_ALLOW: Final = 0x7FFF0000
_ENOSYS: Final = 38

# struct seccomp_data: number, architecture, instruction pointer, six 64-bit arguments (little-endian here).
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
_ARGUMENT_BYTES: Final = 8
_INSTRUCTION: Final = struct.Struct("<HBBI")
# The reach of a conditional jump, and the longest program the kernel takes.
_NEAR: Final = 255
MAX_INSTRUCTIONS: Final = 4096
_ALL_BITS: Final = 0xFFFFFFFF


class UnknownArchitecture(InvalidInput):
    code = "sandbox.unknown_architecture"
    hint = "seccomp programs are made for x86_64 and aarch64"


class Instruction(NamedTuple):
    code: int
    if_true: int
    if_false: int
    value: int


_Code = list[Instruction]
_ALLOW: Final = Instruction(_RETURN, 0, 0, RET_ALLOW)


def _answer(error: int) -> Instruction:
    if error == PRETENDED:
        return Instruction(_RETURN, 0, 0, RET_ERRNO)
    return Instruction(_RETURN, 0, 0, RET_ERRNO | error) if error else _ALLOW


def _clause(clause: Clause) -> _Code:
    """Falls through to what follows when a test does not hold."""
    loads: list[_Code] = []
    for test in clause.tests:
        place = _ARGUMENTS_AT + _ARGUMENT_BYTES * test.argument + (_ARGUMENT_BYTES // 2 if test.high else 0)
        code = [Instruction(_LOAD, 0, 0, place)]
        if test.mask != _ALL_BITS:
            code.append(Instruction(_AND, 0, 0, test.mask))
        loads.append(code)
    length = sum(len(code) + 1 for code in loads) + 1
    made: _Code = []
    for test, code in zip(clause.tests, loads, strict=True):
        made += code
        past = length - len(made) - 1
        made.append(Instruction(_JUMP_EQUAL, *((past, 0) if test.negated else (0, past)), test.value))
    made.append(_answer(clause.error))
    return made


def _leaf(rule: Rule | None) -> _Code:
    if rule is None:
        return [_ALLOW]
    return [instruction for clause in rule.clauses for instruction in _clause(clause)] + [_answer(rule.error)]


def _search(spans: Sequence[tuple[int, _Code]]) -> _Code:
    """Code that finds the span a number is in. A span reaches from its first number to that of the next."""
    if len(spans) == 1:
        return spans[0][1]
    middle = len(spans) // 2
    below, above = _search(spans[:middle]), _search(spans[middle:])
    if len(below) <= _NEAR:
        return [Instruction(_JUMP_AT_LEAST, len(below), 0, spans[middle][0]), *below, *above]
    far = Instruction(_JUMP, 0, 0, len(below))
    return [Instruction(_JUMP_AT_LEAST, 0, 1, spans[middle][0]), far, *below, *above]


def assemble(entries: Sequence[Rule], machine: str) -> tuple[Instruction, ...]:
    numbers = SYSCALLS.get(machine)
    if numbers is None:
        raise UnknownArchitecture(f"no system call table for {machine}", machine=machine)
    by_number = {numbers[rule.call]: rule for rule in entries if rule.call in numbers}
    spans: list[tuple[int, _Code]] = [(0, [_ALLOW])]
    for number in sorted(by_number):
        code = _leaf(by_number[number])
        if spans[-1][0] == number:
            spans.pop()
        # Neighbours with the same answer are one span.
        if not spans or spans[-1][1] != code:
            spans.append((number, code))
        if number + 1 not in by_number:
            spans.append((number + 1, [_ALLOW]))
    # Numbers with the x32 bit, and -1, which a tracer leaves behind, are no calls here.
    spans.append((X32_BIT, [_answer(_ENOSYS)]))
    program = [
        Instruction(_LOAD, 0, 0, _ARCHITECTURE_AT),
        Instruction(_JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        # A 32-bit program would spin on calls that answer with an error: it is ended.
        Instruction(_RETURN, 0, 0, RET_KILL_PROCESS),
        Instruction(_LOAD, 0, 0, _NUMBER_AT),
        *_search(spans),
    ]
    return tuple(program)


def encode(program: Sequence[Instruction]) -> bytes:
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)


@lru_cache(maxsize=16)
def seccomp_program(machine: str, *, unix_sockets: bool) -> bytes:
    """The program for ``LaunchSpec.seccomp`` or ``bwrap --seccomp``. See ``seccomp_rules.rules`` for the choices."""
    return encode(assemble(rules(unix_sockets=unix_sockets), machine))


def tier_b_program(machine: str) -> bytes:
    """For processes that share the host's files and network: no unix sockets but pairs."""
    return seccomp_program(machine, unix_sockets=False)


def tier_c_program(machine: str) -> bytes:
    """For processes in namespaces of their own: unix sockets reach only what is inside."""
    return seccomp_program(machine, unix_sockets=True)
