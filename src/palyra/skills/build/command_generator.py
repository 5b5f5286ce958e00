"""An external generator: a program that reads the request as JSON and writes the project as JSON.

It is the operator's own program, named in the settings and run as given, without a shell, with the operator's rights.
What it writes is bounded and then judged as any generator's work.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from palyra.errors import Unavailable
from palyra.skills.build.generation import BadGeneration, Generated, GenerationRequest
from palyra.strict_json import NotStrictJson, parse_strict

PROTOCOL: Final = "palyra.skill.generate.v1"
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
_SHOWN_BYTES: Final = 2_000
_CHUNK: Final = 65_536


class GeneratorFailed(Unavailable):
    code = "skill.generator_failed"
    hint = "skills.builder_command names the program; it reads JSON on stdin and writes JSON on stdout"


class CommandGenerator:
    def __init__(
        self, command: Sequence[str], *, timeout_seconds: float, environ: Mapping[str, str], wit: str = ""
    ) -> None:
        self._command = tuple(command)
        self._timeout = timeout_seconds
        self._environ = dict(environ)
        self._wit = wit

    @property
    def name(self) -> str:
        return f"command:{Path(self._command[0]).name}"

    def generate(self, request: GenerationRequest) -> Generated:
        question = {"protocol": PROTOCOL, "request": msgspec.to_builtins(request), "wit": self._wit}
        answer = self._ask(msgspec.json.encode(question))
        try:
            document = parse_strict(answer, any_number_spelling=True)
        except NotStrictJson as error:
            raise BadGeneration(f"the generator's answer is not JSON: {error.message}") from error
        if not isinstance(document, dict) or document.get("protocol") != PROTOCOL:
            raise BadGeneration(f"the generator's answer does not begin as {PROTOCOL}")
        try:
            return msgspec.convert({key: value for key, value in document.items() if key != "protocol"}, Generated)
        except msgspec.ValidationError as error:
            raise BadGeneration(f"the generator's answer: {error}") from error

    def _ask(self, question: bytes) -> bytes:
        try:
            process = subprocess.Popen(
                self._command,
                env=self._environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise GeneratorFailed(f"cannot start {self._command[0]}: {error}") from error
        taken = _Taken()
        threads = [
            threading.Thread(target=_feed, args=(process.stdin, question), daemon=True),
            threading.Thread(target=_collect, args=(process.stdout, taken, "answer", MAX_ANSWER_BYTES), daemon=True),
            threading.Thread(target=_collect, args=(process.stderr, taken, "words", _SHOWN_BYTES), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            status = process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            raise GeneratorFailed(f"the generator took longer than {self._timeout:g} seconds") from None
        finally:
            _end(process)
            for thread in threads:
                thread.join(1)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None and not any(thread.is_alive() for thread in threads):
                    stream.close()
        if status:
            words = taken.words[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
            raise GeneratorFailed(f"the generator ended with status {status}: {words}")
        if len(taken.answer) > MAX_ANSWER_BYTES:
            raise BadGeneration(f"the generator wrote more than {MAX_ANSWER_BYTES} bytes")
        return taken.answer


class _Taken:
    def __init__(self) -> None:
        self.answer = b""
        self.words = b""


def _feed(stream: IO[bytes] | None, question: bytes) -> None:
    if stream is None:
        return
    try:
        stream.write(question)
        stream.close()
    except (BrokenPipeError, ValueError):
        # It answers without reading everything, which is its own affair.
        return


def _collect(stream: Any, taken: _Taken, field: str, most: int) -> None:
    """Read to the end, and keep at most one byte more than allowed, which shows that it was too much."""
    kept = bytearray()
    try:
        while chunk := stream.read1(_CHUNK):
            kept += chunk[: max(0, most + 1 - len(kept))]
    except ValueError:
        pass
    setattr(taken, field, bytes(kept))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the program and everything left in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
