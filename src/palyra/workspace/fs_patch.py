"""fs.patch: changes an existing file by a strict unified diff or by exact edits."""

import hashlib
import threading
from typing import Any

from palyra.workspace.errors import BadArgument, NotFound
from palyra.workspace.fs_write import current_content, refuse_changed, refuse_too_large
from palyra.workspace.patch import Edit, Patch, PatchNotAllowed, apply_diff, apply_edits, parse_diff
from palyra.workspace.path import WorkspacePath
from palyra.workspace.replacement import open_target, replace
from palyra.workspace.root import Workspace


def patch(arguments: dict[str, Any], workspace: Workspace, cancelled: threading.Event) -> dict[str, Any]:
    """All of the change or none of it."""
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
        old = current_content(target, cancelled)
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
    """A diff that names files names this one, bare or with git's ``a/`` and ``b/``."""
    for prefix, named in (("a/", parsed.old_path), ("b/", parsed.new_path)):
        if named is not None and named not in (str(path), prefix + str(path)):
            raise PatchNotAllowed("the diff's headers name another file than the call does", path=path.shown())
