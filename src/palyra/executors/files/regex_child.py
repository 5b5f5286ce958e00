"""The program that runs an agent's regular expression, alone in a process that can be killed.

Python's matcher backtracks, cannot be interrupted and holds the interpreter lock while it runs, so that one hostile
pattern on a line of thirty characters would stop a whole daemon. This file is handed to a bare interpreter as text
and imports nothing of Palyra. It speaks frames (four bytes of length, then that many bytes): first the settings, which
it answers with a verdict on the pattern; then lines joined by newlines, answered with [line, column] pairs.
"""

import json
import re
import resource
import struct
import sys
from typing import Any, BinaryIO


def read_frame(stream: BinaryIO) -> bytes | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    return stream.read(struct.unpack(">I", head)[0])


def write_frame(stream: BinaryIO, value: Any) -> None:
    body = json.dumps(value).encode()
    stream.write(struct.pack(">I", len(body)) + body)
    stream.flush()


def find(pattern: re.Pattern[str], lines: list[str], wanted: int) -> list[list[int]]:
    found: list[list[int]] = []
    for number, line in enumerate(lines):
        match = pattern.search(line)
        if match is not None:
            found.append([number, match.start()])
            if len(found) == wanted:
                break
    return found


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    head = read_frame(requests)
    if head is None:
        return
    settings = json.loads(head)
    try:
        pattern = re.compile(settings["pattern"], 0 if settings["case_sensitive"] else re.IGNORECASE)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        write_frame(answers, {"error": str(error)[:200] or type(error).__name__})
        return
    write_frame(answers, {"error": None})
    while (frame := read_frame(requests)) is not None:
        wanted = struct.unpack(">I", frame[:4])[0]
        write_frame(answers, find(pattern, frame[4:].decode().split("\n"), wanted))


def main() -> None:
    cpu_seconds, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
