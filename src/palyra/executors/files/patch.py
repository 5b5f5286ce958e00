"""Changes to one file's bytes: a strict unified diff, or edits that each match exactly once.

A hunk applies at the line it names or not at all; an edit's text occurs once or the edit is refused. There is one
exception: in a file whose every line ends in CRLF, a change without any CR is read as if its lines ended in CRLF.
An agent does not see line endings, and would break them otherwise.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from palyra.errors import Failed, InvalidInput
from palyra.workspace.limits import MAX_HUNKS

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: .*)?", re.DOTALL)
_NO_NEWLINE = b"\\ No newline at end of file"
_DEV_NULL = b"/dev/null"
_GIT_LINES = (b"diff --git ", b"index ")
_CONTEXT, _REMOVED, _ADDED, _MARKER = b" ", b"-", b"+", b"\\"


class PatchMalformed(InvalidInput):
    code = "workspace.patch_malformed"
    hint = "send one file's unified diff: @@ -start,count +start,count @@, then lines that begin with space, - or +"


class PatchNotAllowed(InvalidInput):
    code = "workspace.patch_not_allowed"
    hint = "a patch changes the one existing file that the call names; make files with fs.write"


class PatchMismatch(Failed):
    code = "workspace.patch_mismatch"
    hint = "the file does not hold the text the change expects; read it again and make the change again"


class Change(StrEnum):
    MODIFY = "modify"
    CREATE = "create"
    DELETE = "delete"


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    old_start: int
    new_start: int
    old_lines: tuple[bytes, ...]
    new_lines: tuple[bytes, ...]

    def index(self) -> int:
        """Return the 0-based line it starts at. A hunk with an empty old side names the line before it."""
        return self.old_start - 1 if self.old_lines else self.old_start


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    change: Change
    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    old: str
    new: str


def parse_diff(diff: str) -> Patch:
    """Parse a diff. Headers are optional, because the call names the file; one without the other is refused."""
    lines = _encode(diff).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    at = 0
    while at < len(lines) and lines[at].startswith(_GIT_LINES):
        at += 1
    old_path = new_path = None
    change = Change.MODIFY
    if at < len(lines) and lines[at].startswith(b"--- "):
        if at + 1 == len(lines) or not lines[at + 1].startswith(b"+++ "):
            raise PatchMalformed(f"line {at + 2}: a --- header is followed by a +++ header")
        old_path, new_path = _header_path(lines[at]), _header_path(lines[at + 1])
        change = Change.CREATE if old_path is None else Change.DELETE if new_path is None else Change.MODIFY
        at += 2
    hunks: list[Hunk] = []
    while at < len(lines):
        hunk, at = _parse_hunk(lines, at)
        hunks.append(hunk)
        if len(hunks) > MAX_HUNKS:
            raise PatchMalformed(f"a diff has at most {MAX_HUNKS} hunks")
    if not hunks:
        raise PatchMalformed("the diff has no hunks")
    return Patch(change=change, old_path=old_path, new_path=new_path, hunks=tuple(hunks))


def _header_path(line: bytes) -> str | None:
    name = line[4:].split(b"\t", 1)[0].rstrip(b"\r")
    return None if name == _DEV_NULL else name.decode()


def _parse_hunk(lines: Sequence[bytes], at: int) -> tuple[Hunk, int]:
    head = _HUNK.fullmatch(lines[at])
    if head is None:
        raise PatchMalformed(f"line {at + 1}: a hunk header is expected here")
    old_count, new_count = (1 if count is None else int(count) for count in (head[2], head[4]))
    old: list[bytes] = []
    new: list[bytes] = []
    first, at = at, at + 1
    sides: tuple[list[bytes], ...] = ()
    while at < len(lines):
        kind, text = lines[at][:1], lines[at][1:]
        if kind == _MARKER:
            if lines[at].rstrip(b"\r") != _NO_NEWLINE or not sides:
                raise PatchMalformed(f"line {at + 1}: a line that begins with a backslash marks a missing newline")
            for side in sides:
                side[-1] = side[-1][:-1]
            sides = ()
        elif len(old) == old_count and len(new) == new_count:
            break
        elif kind in (_CONTEXT, _REMOVED, _ADDED):
            sides = (old, new) if kind == _CONTEXT else (old,) if kind == _REMOVED else (new,)
            for side in sides:
                side.append(text + b"\n")
        else:
            raise PatchMalformed(f"line {at + 1}: a hunk's line begins with a space, - or +")
        at += 1
    if (len(old), len(new)) != (old_count, new_count):
        raise PatchMalformed(
            f"line {first + 1}: the header says {old_count} old and {new_count} new lines, "
            f"the hunk has {len(old)} and {len(new)}"
        )
    hunk = Hunk(old_start=int(head[1]), new_start=int(head[3]), old_lines=tuple(old), new_lines=tuple(new))
    if hunk.index() < 0:
        raise PatchMalformed(f"line {first + 1}: lines are counted from 1")
    return hunk, at


def apply_diff(patch: Patch, original: bytes) -> bytes:
    """Return the patched bytes. A diff that creates or deletes the file is refused."""
    if patch.change is not Change.MODIFY:
        raise PatchNotAllowed(f"this diff would {patch.change.value} the file")
    source = _split(original)
    crlf = _ends_in_crlf(original) and not any(
        line.endswith(b"\r\n") for hunk in patch.hunks for line in (*hunk.old_lines, *hunk.new_lines)
    )
    result: list[bytes] = []
    taken = 0
    for number, hunk in enumerate(patch.hunks, 1):
        old, new = (_to_crlf(side) if crlf else side for side in (hunk.old_lines, hunk.new_lines))
        start = hunk.index()
        if start < taken:
            raise PatchMalformed(f"hunk {number} overlaps the one before it or is out of order")
        if tuple(source[start : start + len(old)]) != tuple(old) or start > len(source):
            raise PatchMismatch(f"hunk {number} does not match the file at line {hunk.old_start}", hunk=number)
        result += source[taken:start]
        if hunk.new_start != (len(result) + 1 if new else len(result)):
            raise PatchMalformed(f"hunk {number} says its new lines start at {hunk.new_start}, they do not")
        result += new
        taken = start + len(old)
    result += source[taken:]
    if any(not line.endswith(b"\n") for line in result[:-1]):
        raise PatchMismatch("the patch would leave a line without its newline before the end of the file")
    return b"".join(result)


def apply_edits(edits: Sequence[Edit], original: bytes) -> bytes:
    """Find every edit in the original, never in the text of another edit. Edits may not overlap."""
    crlf = _ends_in_crlf(original)
    places: list[tuple[int, int, bytes, int]] = []
    for number, edit in enumerate(edits, 1):
        old, new = _encode(edit.old), _encode(edit.new)
        if crlf and b"\r" not in old + new:
            old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")
        if not old:
            raise PatchMalformed(f"edit {number} has no old text to find")
        at = original.find(old)
        if at < 0:
            raise PatchMismatch(f"edit {number} does not occur in the file", edit=number)
        if original.find(old, at + 1) >= 0:
            raise PatchMismatch(f"edit {number} occurs more than once in the file; add context to it", edit=number)
        places.append((at, at + len(old), new, number))
    result = bytearray()
    taken = 0
    for start, end, new, number in sorted(places):
        if start < taken:
            raise PatchMismatch(f"edit {number} overlaps another edit", edit=number)
        result += original[taken:start] + new
        taken = end
    return bytes(result + original[taken:])


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise PatchMalformed("the change is not valid Unicode") from None


def _split(data: bytes) -> list[bytes]:
    """Split into lines, which end at LF only: a CR within a line is a character like any other."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _ends_in_crlf(data: bytes) -> bool:
    return 0 < data.count(b"\n") == data.count(b"\r\n")


def _to_crlf(lines: Sequence[bytes]) -> tuple[bytes, ...]:
    return tuple(line[:-1] + b"\r\n" if line.endswith(b"\n") else line for line in lines)
