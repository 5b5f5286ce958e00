import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Denied, ExitCode, Failed, InvalidInput, LimitExceeded, PalyraError, Unavailable
from palyra.sandbox import limits
from palyra.sandbox.domain.process_run import (
    InterpreterDenied,
    InvalidCommand,
    ProcessOutcome,
    QuotaExceeded,
    SandboxProcessRunErrorKind,
    encode_word,
    excerpt,
    parse_command,
)
from palyra.sandbox.domain.profile import Receipt, SandboxTier


def test_a_whole_command() -> None:
    parsed = parse_command(
        {
            "command": "git",
            "args": ["commit", "-m", ""],
            "cwd": "sub",
            "env": {"LANG": "C"},
            "requested_egress_hosts": ["example.org"],
            "timeout_ms": 5,
            "stdin": base64.b64encode(b"\x00\xff").decode(),
            "stdin_encoding": "base64",
            "background": True,
        }
    )
    assert parsed.argv == ("git", "commit", "-m", "")
    assert (parsed.cwd, parsed.env, parsed.timeout_ms) == ("sub", (("LANG", "C"),), 5)
    assert (parsed.stdin, parsed.background) == (b"\x00\xff", True)
    assert parsed.requested_egress_hosts == ("example.org",)


def test_what_may_be_left_away() -> None:
    parsed = parse_command({"command": "ls"})
    assert parsed.args == () and parsed.cwd is None and parsed.env == () and parsed.stdin == b""
    assert parsed.timeout_ms is None and not parsed.background


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "command"),
        ({"command": ""}, "command"),
        ({"command": None}, "command"),
        ({"command": ["ls"]}, "command"),
        ({"command": "l\0s"}, "command"),
        ({"command": "x" * (limits.MAX_COMMAND_BYTES + 1)}, "command"),
        ({"command": "é" * (limits.MAX_COMMAND_BYTES // 2 + 1)}, "command"),
        ({"command": "ls", "args": "x"}, "args"),
        ({"command": "ls", "args": [1]}, "args[0]"),
        ({"command": "ls", "args": ["a", "b\0"]}, "args[1]"),
        ({"command": "ls", "args": ["\ud800"]}, "args[0]"),
        ({"command": "ls", "args": ["x" * (limits.MAX_ARGUMENT_BYTES + 1)]}, "args[0]"),
        ({"command": "ls", "args": ["x"] * (limits.MAX_ARGUMENTS + 1)}, "args"),
        ({"command": "ls", "cwd": ""}, "cwd"),
        ({"command": "ls", "env": []}, "env"),
        ({"command": "ls", "env": {"A=B": "x"}}, "env"),
        ({"command": "ls", "env": {"BASH_FUNC_x%%": "() { id; }"}}, "env"),
        ({"command": "ls", "env": {"": "x"}}, "env"),
        ({"command": "ls", "env": {"A": 1}}, "env.A"),
        ({"command": "ls", "env": {"A": "\0"}}, "env.A"),
        ({"command": "ls", "env": {f"A{n}": "" for n in range(limits.MAX_ENVIRONMENT_VARIABLES + 1)}}, "env"),
        ({"command": "ls", "timeout_ms": True}, "timeout_ms"),
        ({"command": "ls", "timeout_ms": 0}, "timeout_ms"),
        ({"command": "ls", "timeout_ms": 1.5}, "timeout_ms"),
        ({"command": "ls", "timeout_ms": limits.MAX_TIMEOUT_MS + 1}, "timeout_ms"),
        ({"command": "ls", "stdin": 1}, "stdin"),
        ({"command": "ls", "stdin": "?", "stdin_encoding": "base64"}, "stdin"),
        ({"command": "ls", "stdin": "é", "stdin_encoding": "base64"}, "stdin"),
        ({"command": "ls", "stdin_encoding": "latin-1"}, "stdin_encoding"),
        ({"command": "ls", "stdin": "x" * (limits.MAX_STDIN_BYTES + 1)}, "stdin"),
        ({"command": "ls", "background": 1}, "background"),
        ({"command": "ls", "requested_egress_hosts": "x"}, "requested_egress_hosts"),
        ({"command": "ls", "shell": True}, "shell"),
    ],
)
def test_refused_shapes_name_the_field(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidCommand) as refusal:
        parse_command(arguments)
    assert refusal.value.details["field"] == field
    assert refusal.value.details["kind"] == "invalid_input"


@pytest.mark.promise("P-limits")
def test_limits_are_inclusive() -> None:
    parsed = parse_command(
        {"command": "x" * limits.MAX_COMMAND_BYTES, "args": ["y" * limits.MAX_ARGUMENT_BYTES] * limits.MAX_ARGUMENTS}
    )
    assert len(parsed.args) == limits.MAX_ARGUMENTS


@given(st.lists(st.binary(max_size=50).filter(lambda raw: b"\0" not in raw), max_size=5))
def test_any_bytes_go_through_untouched(words: list[bytes]) -> None:
    texts = [word.decode("utf-8", "surrogateescape") for word in words]
    assert [encode_word(word) for word in parse_command({"command": "x", "args": texts}).args] == words


def test_an_excerpt_is_one_short_harmless_line() -> None:
    text = excerpt("a\n\x1b[2J" + "x" * 10_000)
    assert "\n" not in text and "\x1b" not in text and len(text) < 2 * limits.MAX_SHOWN_CHARS


BRANCHES = {
    "disabled": Denied,
    "unsupported_platform": Unavailable,
    "invalid_input": InvalidInput,
    "executable_denied": Denied,
    "interpreter_denied": Denied,
    "workspace_scope_denied": Denied,
    "egress_denied": Denied,
    "quota_exceeded": LimitExceeded,
    "timed_out": LimitExceeded,
    "spawn_failed": Failed,
    "runtime_failure": Failed,
}


@pytest.mark.parametrize("kind", SandboxProcessRunErrorKind)
def test_every_kind_has_one_leaf_on_its_branch(kind: SandboxProcessRunErrorKind) -> None:
    leaf = PalyraError.registry[f"sandbox.{kind}"]
    error = leaf("why", argument="args[0]")
    assert issubclass(leaf, BRANCHES[kind.value])
    assert leaf.code == f"sandbox.{kind.value}"
    assert error.as_dict()["details"] == {"kind": kind.value, "argument": "args[0]"}
    assert error.hint


def test_denials_and_limits_have_their_exit_codes() -> None:
    assert InterpreterDenied.exit_code == ExitCode.DENIED and QuotaExceeded.exit_code == ExitCode.LIMIT


def test_a_quota_error_carries_what_was_captured() -> None:
    outcome = ProcessOutcome(
        exit_code=None,
        signal=9,
        stdout=b"part",
        stderr=b"",
        stdout_truncated=True,
        stderr_truncated=False,
        duration_ms=3,
        tier=SandboxTier.C,
        backend="bubblewrap",
        receipt=Receipt(),
        killed_by="max_output_bytes",
    )
    error = QuotaExceeded("too much", outcome=outcome)
    assert error.outcome is outcome and "outcome" not in error.details
