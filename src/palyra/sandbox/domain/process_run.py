"""One run of a program: the command that an agent requests, its end, and the refusals before it begins.

The command is parsed once, and the words of its command line never change after that. Every refusal has a kind, and
every kind one leaf of the error tree, ``sandbox.<kind>``, with the kind in its details.
"""

import base64
import binascii
import contextlib
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, PalyraError
from palyra.sandbox import limits
from palyra.sandbox.domain.facts import ProtectedChange
from palyra.sandbox.domain.network import NetworkUsage
from palyra.sandbox.domain.profile import VARIABLE_NAME, Receipt, SandboxTier
from palyra.workspace.names import render_name


class ProcessCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Text may hold bytes that are not UTF-8 as lone surrogates, as Python's own file names do."""

    command: str
    args: tuple[str, ...] = ()
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    requested_egress_hosts: tuple[str, ...] = ()
    timeout_ms: int | None = None
    stdin: bytes = b""
    background: bool = False
    # The reading end of a pipe that this process fills while the program runs. No caller can name one.
    live_input: int | None = None
    # The last look before the start, on a thread. It raises what refuses the call.
    before_start: Callable[[], None] | None = None
    # The place of ``cwd`` in the workspace that policy saw.
    cwd_place: str | None = None

    @property
    def known_input(self) -> bytes | None:
        """The input of the program; None where it is not known before the program runs."""
        return self.stdin if self.live_input is None else None

    @property
    def argv(self) -> tuple[str, ...]:
        return (self.command, *self.args)


# The fields of a request: the last three are ours, and text of the input may be encoded.
_FIELDS: Final = {*ProcessCommand.__struct_fields__, "stdin_encoding"} - {"live_input", "before_start", "cwd_place"}


def encode_word(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")


def excerpt(text: str) -> str:
    """Render a word of the command line in one line of harmless text, short enough for a refusal."""
    cut = text[: limits.MAX_SHOWN_CHARS]
    return render_name(cut) + ("…" if len(cut) < len(text) else "")


def parse_command(arguments: dict[str, Any]) -> ProcessCommand:
    """Refuse unknown fields, wrong types, NUL, values that are too long, and text that has no bytes."""
    for name in arguments:
        if name not in _FIELDS:
            raise InvalidCommand(f"there is no field {excerpt(str(name))!r}", field=excerpt(str(name)))
    cwd, background = arguments.get("cwd"), arguments.get("background", False)
    if not isinstance(background, bool):
        raise InvalidCommand("background must be true or false", field="background")
    return ProcessCommand(
        command=_word(arguments.get("command"), "command", limits.MAX_COMMAND_BYTES, empty=False),
        args=_words(arguments.get("args", []), "args", limits.MAX_ARGUMENTS, limits.MAX_ARGUMENT_BYTES),
        cwd=None if cwd is None else _word(cwd, "cwd", limits.MAX_CWD_BYTES, empty=False),
        env=_environment(arguments.get("env", {})),
        requested_egress_hosts=_words(
            arguments.get("requested_egress_hosts", []),
            "requested_egress_hosts",
            limits.MAX_REQUESTED_HOSTS,
            limits.MAX_ARGUMENT_BYTES,
        ),
        timeout_ms=_timeout(arguments.get("timeout_ms")),
        stdin=_stdin(arguments.get("stdin", ""), arguments.get("stdin_encoding", "utf-8")),
        background=background,
    )


def _word(value: Any, field: str, most: int, *, empty: bool = True) -> str:
    if not isinstance(value, str):
        raise InvalidCommand(f"{field} must be a string", field=field)
    if not value and not empty:
        raise InvalidCommand(f"{field} is empty", field=field)
    if "\0" in value:
        raise InvalidCommand(f"{field} has a NUL character", field=field)
    try:
        size = len(encode_word(value))
    except UnicodeEncodeError:
        raise InvalidCommand(f"{field} is not valid Unicode", field=field) from None
    if size > most:
        raise InvalidCommand(f"{field} has {size} bytes; at most {most} are taken", field=field, limit=most)
    return value


def _words(value: Any, field: str, most: int, most_bytes: int) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidCommand(f"{field} must be a list of strings", field=field)
    if len(value) > most:
        raise InvalidCommand(f"{field} has {len(value)} entries; at most {most} are taken", field=field, limit=most)
    return tuple(_word(word, f"{field}[{position}]", most_bytes) for position, word in enumerate(value))


def _environment(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise InvalidCommand("env must be an object of strings", field="env")
    if len(value) > limits.MAX_ENVIRONMENT_VARIABLES:
        most = limits.MAX_ENVIRONMENT_VARIABLES
        raise InvalidCommand(f"env has {len(value)} variables; at most {most} are taken", field="env", limit=most)
    variables = []
    for name, content in value.items():
        if (
            not isinstance(name, str)
            or not VARIABLE_NAME.fullmatch(name)
            or len(name) > limits.MAX_ENVIRONMENT_NAME_BYTES
        ):
            raise InvalidCommand(f"{excerpt(str(name))!r} is not the name of a variable", field="env")
        variables.append((name, _word(content, f"env.{name}", limits.MAX_GUARDED_VALUE_BYTES)))
    return tuple(variables)


def _timeout(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limits.MAX_TIMEOUT_MS:
        raise InvalidCommand(f"timeout_ms must be a number from 1 to {limits.MAX_TIMEOUT_MS}", field="timeout_ms")
    return value


def _stdin(value: Any, encoding: Any) -> bytes:
    if encoding not in ("utf-8", "base64"):
        raise InvalidCommand("stdin_encoding must be utf-8 or base64", field="stdin_encoding")
    if not isinstance(value, str):
        raise InvalidCommand("stdin must be a string", field="stdin")
    try:
        data = base64.b64decode(value.encode(), validate=True) if encoding == "base64" else encode_word(value)
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidCommand(f"stdin is not {encoding}", field="stdin") from None
    if len(data) > limits.MAX_STDIN_BYTES:
        most = limits.MAX_STDIN_BYTES
        raise InvalidCommand(f"stdin has {len(data)} bytes; at most {most} are taken", field="stdin", limit=most)
    return data


class SandboxProcessRunErrorKind(StrEnum):
    DISABLED = "disabled"
    UNSUPPORTED_PLATFORM = "unsupported_platform"
    INVALID_INPUT = "invalid_input"
    EXECUTABLE_DENIED = "executable_denied"
    INTERPRETER_DENIED = "interpreter_denied"
    WORKSPACE_SCOPE_DENIED = "workspace_scope_denied"
    EGRESS_DENIED = "egress_denied"
    QUOTA_EXCEEDED = "quota_exceeded"
    TIMED_OUT = "timed_out"
    SPAWN_FAILED = "spawn_failed"
    RUNTIME_FAILURE = "runtime_failure"


class ProcessOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """``exit_code`` is None where a signal ended the program. ``killed_by`` names the limit for which we killed it."""

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    duration_ms: int
    tier: SandboxTier
    backend: str
    receipt: Receipt
    killed_by: str | None = None
    # The traffic of its network, if the call had one.
    egress: NetworkUsage | None = None
    # Protected names that it planted or changed, and the folder of those that were moved aside.
    changes: tuple[ProtectedChange, ...] = ()
    moved_into: str = ""
    # The patterns of read-only names that it complained about.
    in_the_way: tuple[str, ...] = ()


class _OfKind(PalyraError):
    """An error with its kind in the details, and with the outcome of the program if it was started at all."""

    def __init__(
        self, message: str, *, hint: str | None = None, outcome: ProcessOutcome | None = None, **details: Any
    ) -> None:
        super().__init__(message, hint=hint, **{"kind": self.code.removeprefix("sandbox."), **details})
        self.outcome = outcome


class SandboxDisabled(_OfKind, Denied):
    code = "sandbox.disabled"
    hint = "an operator switched off running processes"


class InvalidCommand(_OfKind, InvalidInput):
    code = "sandbox.invalid_input"
    hint = "see the tool's input schema"


class ExecutableDenied(_OfKind, Denied):
    code = "sandbox.executable_denied"
    hint = "run a program that the profile lists, or ask an operator to list this one in allowed_executables"


class InterpreterDenied(_OfKind, Denied):
    code = "sandbox.interpreter_denied"
    hint = "run the program itself, without a shell or another program around it; or ask for allow_interpreters"


class WorkspaceScopeDenied(_OfKind, Denied):
    code = "sandbox.workspace_scope_denied"
    hint = "name files beneath the workspace; links that lead out of it are followed before they are judged"


class EgressDenied(_OfKind, Denied):
    code = "sandbox.egress_denied"
    hint = "name only hosts in allowed_egress_hosts, spelled plainly and without user or password"


class QuotaExceeded(_OfKind, LimitExceeded):
    code = "sandbox.quota_exceeded"
    hint = "what was captured up to the limit is in the result; print less, or write to a file"


class ProcessTimedOut(_OfKind, LimitExceeded):
    code = "sandbox.timed_out"
    hint = "ask for a longer timeout_ms within the maximum, or start it in the background"
    http_status = 504


class SpawnFailed(_OfKind, Failed):
    code = "sandbox.spawn_failed"
    hint = "check that the program exists inside the sandbox and may be executed"
    http_status = 422


class RuntimeFailure(_OfKind, Failed):
    code = "sandbox.runtime_failure"
    hint = "the sandbox itself failed; `palyra doctor` checks its parts"


def encode_text(content: bytes) -> tuple[str, str]:
    """Return UTF-8 as text unless JSON swells it: six characters for each control byte would not fit."""
    with contextlib.suppress(UnicodeDecodeError):
        text = content.decode("utf-8")
        if len(msgspec.json.encode(text)) <= 2 * len(content) + len('""'):
            return text, "utf-8"
    return base64.b64encode(content).decode(), "base64"


def drop_cut_character(content: bytes, truncated: bool) -> bytes:
    """Drop the last character if a quota has cut it: that alone does not make text binary."""
    return keep_whole_characters(content) if truncated else content


def keep_whole_characters(content: bytes) -> bytes:
    """Drop the first bytes of a character whose rest is missing at the end."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return content[: error.start]
    return content
