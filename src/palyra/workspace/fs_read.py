"""fs.read: part or all of a regular file."""

import base64
import hashlib
import os
import threading
from typing import Any

from palyra.workspace.errors import NotText
from palyra.workspace.limits import DEFAULT_READ_BYTES, MAX_READ_BYTES, MAX_SAFE_INTEGER, WHOLE_FILE_BYTES
from palyra.workspace.path import WorkspacePath
from palyra.workspace.root import Workspace, open_regular, read_up_to

_LONGEST_CHARACTER_BYTES = 4


def read(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """Reads without following anything out of the workspace and without ever opening a pipe or a device.

    ``sha256`` is that of the whole file where ``sha256_of`` says ``file``, and only then fit for ``expected_sha256``;
    of a file too large to read whole it is that of the returned bytes, and ``sha256_of`` says ``part``.
    """
    path = WorkspacePath.parse(arguments["path"])
    offset = arguments.get("offset", 0)
    limit = min(arguments.get("limit", DEFAULT_READ_BYTES), MAX_READ_BYTES)
    encoding = arguments.get("encoding", "utf-8")
    shown = path.shown()
    with open_regular(workspace.descriptor, path.encoded(), shown=shown) as descriptor:
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
    """Text, without the character that the limit cut in two: the next part starts with it."""
    try:
        return part, part.decode()
    except UnicodeDecodeError as error:
        cut_off = more and error.reason == "unexpected end of data" and error.start > 0
        if cut_off and len(part) - error.start < _LONGEST_CHARACTER_BYTES:
            return part[: error.start], part[: error.start].decode()
        raise NotText(f"{shown} is not UTF-8 at byte {error.start} of the part read", path=shown) from None
