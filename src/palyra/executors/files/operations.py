"""The functions of ``fs.list``, ``fs.read``, ``fs.write`` and ``fs.patch``. Each sees nothing but an open workspace."""

import base64
import binascii
import contextlib
import hashlib
import os
import stat
import threading
from typing import Any

from palyra.clock import MS_PER_SECOND, rfc3339
from palyra.executors.files.patch import Edit, Patch, PatchNotAllowed, apply_diff, apply_edits, parse_diff
from palyra.workspace.errors import AlreadyExists, BadArgument, Changed, FileTooLarge, NotFound, NotText
from palyra.workspace.limits import (
    DEFAULT_LIST_ENTRIES,
    DEFAULT_READ_BYTES,
    MAX_FILE_BYTES,
    MAX_LIST_ENTRIES,
    MAX_LIST_TEXT_CHARS,
    MAX_READ_BYTES,
    MAX_SAFE_INTEGER,
    WHOLE_FILE_BYTES,
)
from palyra.workspace.names import WorkspacePath, decode_name, is_plain, render_name
from palyra.workspace.replacement import Target, open_target, replace
from palyra.workspace.root import (
    OPEN_DIRECTORY,
    Entry,
    Shortfall,
    Workspace,
    hold,
    kind_of,
    open_regular,
    read_up_to,
    refuse_cancelled,
    walk,
)

# File systems hold times outside the calendar. They become the nearest instant whose year has four digits.
_FIRST_SECOND = -30_610_224_000
_LAST_SECOND = 253_402_300_799


def list_directory(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """List entries sorted by the bytes of their names. A link is an entry and is never followed."""
    path = WorkspacePath.parse(arguments.get("path", "."))
    wanted = min(arguments.get("max_entries", DEFAULT_LIST_ENTRIES), MAX_LIST_ENTRIES)
    shortfall = Shortfall()
    entries: list[dict[str, Any]] = []
    room = MAX_LIST_TEXT_CHARS
    truncated = False
    with hold(workspace.open(path, OPEN_DIRECTORY)) as directory:
        found = walk(
            directory,
            recursive=arguments.get("recursive", False),
            shortfall=shortfall,
            keep_going=lambda: refuse_cancelled(cancelled),
        )
        with contextlib.closing(found):
            for entry in found:
                described = _describe(entry)
                room -= len(described["name"]) + len(described.get("target", ""))
                if len(entries) == wanted or room < 0:
                    truncated = True
                    break
                entries.append(described)
    return {
        "path": path.render(),
        "entries": entries,
        "truncated": truncated or shortfall.incomplete,
        "unreadable": shortfall.unreadable,
    }


def _describe(entry: Entry) -> dict[str, Any]:
    name = "/".join(entry.names)
    described: dict[str, Any] = {
        "name": render_name(name),
        "escaped": not is_plain(name),
        "type": kind_of(entry.status.st_mode),
        "size": min(entry.status.st_size, MAX_SAFE_INTEGER),
        "mtime": _to_instant(entry.status),
    }
    if stat.S_ISLNK(entry.status.st_mode):
        try:
            target = os.readlink(entry.encoded, dir_fd=entry.directory)
        except OSError:
            # It is no longer a link; its status from a moment ago is still a true answer.
            return described
        described["target"] = render_name(decode_name(target))
    return described


def _to_instant(status: os.stat_result) -> str:
    seconds, rest = divmod(status.st_mtime_ns, 1_000_000_000)
    milliseconds = rest // 1_000_000
    return rfc3339(min(max(seconds, _FIRST_SECOND), _LAST_SECOND) * MS_PER_SECOND + milliseconds)


_LONGEST_CHARACTER_BYTES = 4


def read(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """Read part or all of a regular file; never follow a link out of the workspace, or open a pipe or a device.

    ``sha256_of`` is ``file`` if ``sha256`` is the digest of the whole file; only then it fits ``expected_sha256``.
    For a file too large to read whole, ``sha256`` is the digest of the returned bytes, and ``sha256_of`` is ``part``.
    """
    path = WorkspacePath.parse(arguments["path"])
    offset = arguments.get("offset", 0)
    limit = min(arguments.get("limit", DEFAULT_READ_BYTES), MAX_READ_BYTES)
    encoding = arguments.get("encoding", "utf-8")
    shown = path.render()
    with workspace.open_file(path) as descriptor:
        size = os.fstat(descriptor).st_size
        whole = None
        if size <= WHOLE_FILE_BYTES:
            whole = read_up_to(descriptor, 0, WHOLE_FILE_BYTES + 1, shown=shown, cancelled=cancelled)
            if len(whole) > WHOLE_FILE_BYTES:
                whole = None
            else:
                size = len(whole)
        if whole is not None:
            part, more = whole[offset : offset + limit], offset + limit < len(whole)
        else:
            part = read_up_to(descriptor, offset, limit + 1, shown=shown, cancelled=cancelled)
            part, more = part[:limit], len(part) > limit
    if encoding == "utf-8":
        part, content = _as_text(part, more, shown)
    else:
        content = base64.b64encode(part).decode("ascii")
    return {
        "path": shown,
        "content": content,
        "encoding": encoding,
        "offset": offset,
        "bytes": len(part),
        "size": min(size, MAX_SAFE_INTEGER),
        "truncated": more,
        "sha256": hashlib.sha256(part if whole is None else whole).hexdigest(),
        "sha256_of": "part" if whole is None else "file",
    }


def _as_text(part: bytes, more: bool, shown: str) -> tuple[bytes, str]:
    """Decode the part without the character that the limit cut in two: the next part starts with it."""
    try:
        return part, part.decode()
    except UnicodeDecodeError as error:
        cut_off = more and error.reason == "unexpected end of data" and error.start > 0
        if cut_off and len(part) - error.start < _LONGEST_CHARACTER_BYTES:
            return part[: error.start], part[: error.start].decode()
        raise NotText(f"{shown} is not UTF-8 at byte {error.start} of the part read", path=shown) from None


def write(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """Write a new file and give it the old one's name; ``workspace/replacement.py`` states the guarantees."""
    path = WorkspacePath.parse(arguments["path"])
    mode = arguments.get("mode", "create")
    content = _decode_content(arguments)
    with open_target(
        workspace, path, create_parents=arguments.get("create_parents", False), cancelled=cancelled
    ) as target:
        if target.existing is not None and mode == "create":
            raise AlreadyExists(f"{target.shown} exists already", path=target.shown)
        expected = arguments.get("expected_sha256")
        if mode == "append" or expected is not None:
            old = read_current(target, cancelled)
            refuse_changed(target, old, expected)
            if mode == "append":
                content = (old or b"") + content
        refuse_too_large(content, target.shown)
        replace(target, content, executable=arguments.get("executable"), cancelled=cancelled)
        return {
            "path": target.shown,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "created": target.existing is None,
        }


def read_current(target: Target, cancelled: threading.Event) -> bytes | None:
    """Return the target's present bytes without following a link, or None if the file does not exist."""
    if target.existing is None:
        return None
    with open_regular(target.directory, target.name, shown=target.shown, follow=False) as descriptor:
        content = read_up_to(descriptor, 0, MAX_FILE_BYTES + 1, shown=target.shown, cancelled=cancelled)
    refuse_too_large(content, target.shown)
    return content


def refuse_changed(target: Target, old: bytes | None, expected: str | None) -> None:
    if expected is None:
        return
    actual = None if old is None else hashlib.sha256(old).hexdigest()
    if actual != expected.lower():
        what = "does not exist" if actual is None else "has other content"
        raise Changed(f"{target.shown} {what}", path=target.shown)


def refuse_too_large(content: bytes, shown: str) -> None:
    if len(content) > MAX_FILE_BYTES:
        raise FileTooLarge(f"{shown} has or would have more than {MAX_FILE_BYTES} bytes", path=shown)


def _decode_content(arguments: dict[str, Any]) -> bytes:
    raw: str = arguments["content"]
    try:
        if arguments.get("encoding", "utf-8") == "base64":
            return base64.b64decode(raw, validate=True)
        return raw.encode()
    except (binascii.Error, ValueError) as error:
        raise BadArgument(f"content cannot be decoded: {error}") from error


def patch(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """Apply a strict unified diff or exact edits to an existing file, all or nothing."""
    path = WorkspacePath.parse(arguments["path"])
    if ("diff" in arguments) == ("edits" in arguments):
        raise BadArgument("send either diff or edits")
    parsed: Patch | None = None
    edits: list[Edit] = []
    if "diff" in arguments:
        parsed = parse_diff(arguments["diff"])
        _refuse_other_file(parsed, path)
    else:
        edits = [Edit(old=each["old"], new=each["new"]) for each in arguments["edits"]]
    with open_target(workspace, path, create_parents=False, cancelled=cancelled) as target:
        old = read_current(target, cancelled)
        refuse_changed(target, old, arguments.get("expected_sha256"))
        if old is None:
            raise NotFound(f"{target.shown} does not exist", path=target.shown)
        content = apply_diff(parsed, old) if parsed is not None else apply_edits(edits, old)
        refuse_too_large(content, target.shown)
        replace(target, content, executable=None, cancelled=cancelled)
        return {
            "path": target.shown,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "applied": len(edits) if parsed is None else len(parsed.hunks),
            "kind": "edits" if parsed is None else "hunks",
        }


def _refuse_other_file(parsed: Patch, path: WorkspacePath) -> None:
    """Refuse a diff whose headers name another file. Git's prefixes ``a/`` and ``b/`` are allowed."""
    for prefix, named in (("a/", parsed.old_path), ("b/", parsed.new_path)):
        if named is not None and named not in (str(path), prefix + str(path)):
            raise PatchNotAllowed("the diff's headers name another file than the call does", path=path.render())
