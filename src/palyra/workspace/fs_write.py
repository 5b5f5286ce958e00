"""fs.write: makes, replaces or extends a file, as a whole or not at all."""

import base64
import binascii
import hashlib
import threading
from typing import Any

from palyra.workspace.errors import AlreadyExists, BadArgument, Changed, FileTooLarge
from palyra.workspace.limits import MAX_FILE_BYTES
from palyra.workspace.path import WorkspacePath
from palyra.workspace.replacement import Target, open_target, replace
from palyra.workspace.root import Workspace, open_regular, read_up_to


def write(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """Writes beside the old file and then takes its name; see replacement.py for what that promises."""
    path = WorkspacePath.parse(arguments["path"])
    mode = arguments.get("mode", "create")
    content = _content(arguments)
    with open_target(
        workspace, path, create_parents=arguments.get("create_parents", False), cancelled=cancelled
    ) as target:
        if target.existing is not None and mode == "create":
            raise AlreadyExists(f"{target.shown} exists already", path=target.shown)
        expected = arguments.get("expected_sha256")
        if mode == "append" or expected is not None:
            old = current_content(target, cancelled)
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


def current_content(target: Target, cancelled: threading.Event) -> bytes | None:
    """The bytes now under the target's name, read without following a link; None where there is no file."""
    if target.existing is None:
        return None
    with open_regular(target.directory, target.name, shown=target.shown, follow=False) as descriptor:
        content = read_up_to(descriptor, 0, MAX_FILE_BYTES + 1, shown=target.shown, cancelled=cancelled)
    refuse_too_large(content, target.shown)
    return content


def refuse_changed(target: Target, old: bytes | None, expected: str | None) -> None:
    """Raises unless the file is the one whose digest the caller knows."""
    if expected is None:
        return
    actual = None if old is None else hashlib.sha256(old).hexdigest()
    if actual != expected.lower():
        what = "does not exist" if actual is None else "has other content"
        raise Changed(f"{target.shown} {what}", path=target.shown)


def refuse_too_large(content: bytes, shown: str) -> None:
    if len(content) > MAX_FILE_BYTES:
        raise FileTooLarge(f"{shown} has or would have more than {MAX_FILE_BYTES} bytes", path=shown)


def _content(arguments: dict[str, Any]) -> bytes:
    raw: str = arguments["content"]
    try:
        if arguments.get("encoding", "utf-8") == "base64":
            return base64.b64decode(raw, validate=True)
        return raw.encode()
    except (binascii.Error, ValueError) as error:
        raise BadArgument(f"content cannot be decoded: {error}") from error
