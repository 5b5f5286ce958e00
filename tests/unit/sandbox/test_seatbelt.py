"""The macOS profile: a small reader of its rules says what they allow."""

import re

import pytest

from palyra.sandbox.domain.profile import EgressEnforcementMode, SandboxProfile
from palyra.sandbox.domain.seatbelt import quoted, seatbelt_profile

RULE = re.compile(r'^\((allow|deny) ([a-z*\- ]+?)(?: \((subpath|literal|regex) "((?:[^"\\]|\\.)*)"\))?\)$')
PATTERNS = (".git/hooks", ".env*", "[ab].k?y", 'we ird"(name)')


def decision(text: str, operation: str, path: str) -> str:
    """The last rule that matches decides."""
    verdict = "deny"
    for line in text.splitlines():
        found = RULE.match(line)
        if not found:
            continue
        action, operations, kind, raw = found.groups()
        names = operations.split()
        if not any(each == operation or (each.endswith("*") and operation.startswith(each[:-1])) for each in names):
            continue
        value = re.sub(r"\\(.)", r"\1", raw) if raw is not None else ""
        if (
            kind is None
            or (kind == "literal" and path == value)
            or (kind == "subpath" and (path == value or path.startswith(value + "/")))
            or (kind == "regex" and re.search(value, path))
        ):
            verdict = action
    return verdict


def text(**changes: object) -> str:
    profile = SandboxProfile(workspace_root="/Users/a/w.x", protected_names=PATTERNS, **changes)  # type: ignore[arg-type]
    return seatbelt_profile(profile, temporary="/private/tmp/call-1")


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [
        ("file-write-data", "/Users/a/w.x/src/main.c", "allow"),
        ("file-write-data", "/Users/a/wyx/src/main.c", "deny"),
        ("file-write-data", "/private/tmp/call-1/a", "allow"),
        ("file-write-data", "/private/tmp/call-2/a", "deny"),
        ("file-write-data", "/usr/bin/cc", "deny"),
        ("file-read-data", "/usr/bin/cc", "allow"),
        ("file-read-data", "/Users/a/.ssh/id", "deny"),
        ("file-read-data", "/Users/a/w.x/.env", "allow"),
        ("file-write-data", "/Users/a/w.x/.env", "deny"),
        ("file-write-data", "/Users/a/w.x/.ENV.local", "deny"),
        ("file-write-create", "/Users/a/w.x/deep/.git/hooks/post-commit", "deny"),
        ("file-write-data", "/Users/a/w.x/deep/.git/index", "allow"),
        ("file-write-unlink", "/Users/a/w.x/deep/.git", "deny"),
        ("file-write-unlink", "/Users/a/w.x/deep", "allow"),
        ("file-write-unlink", "/Users/a/w.x", "deny"),
        ("file-write-data", "/Users/a/w.x/a.key", "deny"),
        ("file-write-data", "/Users/a/w.x/c.key", "allow"),
        ("file-write-data", '/Users/a/w.x/we ird"(name)', "deny"),
        ("network-outbound", "", "deny"),
    ],
)
def test_rules(operation: str, path: str, expected: str) -> None:
    assert decision(text(), operation, path) == expected


def test_read_only_and_shared_network() -> None:
    shown = text(read_only=True, egress=EgressEnforcementMode.NONE, tool_roots=("/opt/tools",))
    assert decision(shown, "file-write-data", "/Users/a/w.x/src") == "deny"
    assert decision(shown, "network-outbound", "") == "allow"
    assert decision(shown, "file-read-data", "/opt/tools/bin/x") == "allow"


def test_a_path_cannot_end_its_string_and_every_rule_has_a_reason() -> None:
    assert quoted('a"b\\c\nd') == '"a\\"b\\\\c\\nd"'
    lines = text().splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("(") and number > 0]
    assert all(lines[number - 1].startswith(";") for number in rules if lines[number] != "(allow process-exec)")
    assert lines[0] == "(version 1)"
    assert "(deny default)" in lines
