"""The texts of the process tools and the JSON Schemas (draft 2020-12) of their arguments and results."""

from typing import Any, Final

from palyra.egress.limits import MAX_HOST_CHARS
from palyra.sandbox import limits

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MAX_SAFE_INTEGER: Final = 2**53 - 1
_HIGHEST_SIGNAL: Final = 64
_HIGHEST_EXIT_CODE: Final = 255


def _object(properties: dict[str, Any], *, required: tuple[str, ...]) -> dict[str, Any]:
    return {
        "$schema": _DIALECT,
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _number(description: str, *, minimum: int = 0, maximum: int = _MAX_SAFE_INTEGER, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description, **more}


def _flag(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "boolean", "description": description, **more}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


_COMMAND: Final[dict[str, Any]] = {
    "command": _text(
        "The program: a name that is looked up in the sandbox's PATH, or a path. No shell reads it, so no pipes, "
        "redirections, globs or variables; interpreters and programs that run others need the operator's leave.",
        minLength=1,
        maxLength=limits.MAX_COMMAND_BYTES,
    ),
    "args": {
        "type": "array",
        "items": {"type": "string", "maxLength": limits.MAX_ARGUMENT_BYTES, "description": "One argument."},
        "maxItems": limits.MAX_ARGUMENTS,
        "default": [],
        "description": "The arguments, passed exactly as given. Paths in them must lie in the workspace.",
    },
    "cwd": _text(
        "The directory to run in, in the workspace. Without it, the workspace itself.",
        minLength=1,
        maxLength=limits.MAX_CWD_BYTES,
    ),
    "env": {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
        "patternProperties": {
            "^[A-Za-z_][A-Za-z0-9_]*$": {
                "type": "string",
                "maxLength": limits.MAX_GUARDED_VALUE_BYTES,
                "description": "The value of one variable.",
            }
        },
        "maxProperties": limits.MAX_ENVIRONMENT_VARIABLES,
        "default": {},
        "description": "Variables besides the sandbox's own. Those that load code or name programs are refused.",
    },
    "requested_egress_hosts": {
        "type": "array",
        "items": _text("A host, or host:port.", minLength=1, maxLength=MAX_HOST_CHARS + len(":65535")),
        "maxItems": limits.MAX_REQUESTED_HOSTS,
        "default": [],
        "description": "Hosts that the program will connect to. The call is refused if one of them is not allowed.",
    },
    "timeout_ms": _number(
        "How long the program may run, in milliseconds, within what the operator allows.",
        minimum=1,
        maximum=limits.MAX_TIMEOUT_MS,
    ),
    "stdin": _text("What the program reads from its standard input.", default=""),
    "stdin_encoding": _text(
        "How stdin is written in JSON: as text, or as base64 for other bytes.",
        enum=["utf-8", "base64"],
        default="utf-8",
    ),
}
_HANDLE: Final = _text(
    "The handle that process.start returned. It belongs to the run that started the process.",
    minLength=1,
    maxLength=limits.MAX_HANDLE_CHARS,
)
_STATE: Final = _text("Whether the process still runs, or how it ended.", enum=["running", "exited", "killed"])


def _stream(name: str) -> dict[str, Any]:
    return {
        name: _text(f"What the program wrote to {name}, in {name}_encoding."),
        f"{name}_encoding": _text(
            f"How {name} is written in JSON: base64 where the bytes are not UTF-8.", enum=["utf-8", "base64"]
        ),
        f"{name}_truncated": _flag(f"Whether the program wrote more to {name} than is kept."),
    }


_OUTCOME: Final[dict[str, Any]] = {
    "exit_code": _or_null(
        _number("The program's exit code; null where a signal ended it.", maximum=_HIGHEST_EXIT_CODE)
    ),
    "signal": _or_null(
        _number("The signal that ended the program; null where it exited.", minimum=1, maximum=_HIGHEST_SIGNAL)
    ),
    **_stream("stdout"),
    **_stream("stderr"),
    "duration_ms": _number("How long the program ran, in milliseconds."),
    "killed_by": _or_null(_text("The limit for which the program was ended; null where it ended by itself.")),
    "tier": _text("The tier it ran in: b has limits, c is isolated.", enum=["b", "c"]),
    "backend": _text("What contained it, such as bubblewrap."),
    "protected": {
        "type": "object",
        "description": "Only where it made or changed files that only an operator may: what became of them.",
        "properties": {
            "changes": {
                "type": "array",
                "description": "What changed.",
                "items": _text("A name, and what became of it."),
            },
            "hint": _text("The setting that lets agents write such names."),
        },
        "required": ["changes", "hint"],
        "additionalProperties": False,
    },
}

RUN_INPUT: Final = _object(
    {
        **_COMMAND,
        "background": _flag("Whether to return at once with a handle, as process.start does.", default=False),
    },
    required=("command",),
)
RUN_OUTPUT: Final = _object(
    {**_OUTCOME, "handle": _text("Only with background: the handle for process.logs and process.stop.")},
    # A background call has nothing more to tell yet but its handle.
    required=("tier", "backend"),
)
START_INPUT: Final = _object(_COMMAND, required=("command",))
START_OUTPUT: Final = _object(
    {
        "handle": _text("The handle for process.logs and process.stop."),
        "state": _STATE,
        "tier": _OUTCOME["tier"],
        "backend": _OUTCOME["backend"],
    },
    required=("handle", "state", "tier", "backend"),
)
LOGS_INPUT: Final = _object(
    {
        "handle": _HANDLE,
        "stream": _text("Which output to read.", enum=["stdout", "stderr"], default="stdout"),
        "offset": _number("The byte to start at: next_offset of the look before.", default=0),
        "limit": _number(
            "The most bytes to return.", minimum=1, maximum=limits.MAX_LOG_BYTES, default=limits.DEFAULT_LOG_BYTES
        ),
    },
    required=("handle",),
)
LOGS_OUTPUT: Final = _object(
    {
        "handle": _HANDLE,
        "state": _STATE,
        "stream": _text("The output that was read.", enum=["stdout", "stderr"]),
        "content": _text("The bytes, in the given encoding."),
        "encoding": _text("base64 where the bytes are not UTF-8.", enum=["utf-8", "base64"]),
        "offset": _number("The byte that content starts at."),
        "next_offset": _number("Where the next look goes on."),
        "truncated": _flag("Whether the program wrote more than is kept."),
        "exit_code": _OUTCOME["exit_code"],
        "signal": _OUTCOME["signal"],
    },
    required=("handle", "state", "stream", "content", "encoding", "offset", "next_offset", "truncated"),
)
STOP_INPUT: Final = _object({"handle": _HANDLE}, required=("handle",))
STOP_OUTPUT: Final = _object(
    {"handle": _HANDLE, "state": _STATE, **_OUTCOME},
    required=("handle", "state", "exit_code", "signal", "stdout", "stderr", "duration_ms", "killed_by"),
)
TEXTS: Final = {
    "process.run": (
        "Run a program",
        "Runs one program in the sandbox and returns what it printed and how it ended. No shell is involved.",
        RUN_INPUT,
        RUN_OUTPUT,
    ),
    "process.start": (
        "Start a program in the background",
        "Starts one program in the sandbox and returns a handle. It ends with its deadline, or when it is stopped.",
        START_INPUT,
        START_OUTPUT,
    ),
    "process.logs": (
        "Read a background program's output",
        "Returns what a program started in this run has printed, from a given byte on.",
        LOGS_INPUT,
        LOGS_OUTPUT,
    ),
    "process.stop": (
        "Stop a background program",
        "Ends a program started in this run, with everything it started, and returns how it ended.",
        STOP_INPUT,
        STOP_OUTPUT,
    ),
}
