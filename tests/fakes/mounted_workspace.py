"""A program that attacks the file tools in a mount namespace of its own: ``mounted.py mounts|full DIR``."""

import os
import subprocess
import sys
from pathlib import Path

from fakes.workspace_harness import call, everything_refused, harness, refused
from palyra.workspace.root import open_workspace


def with_mounts(base: Path) -> None:
    """A mount inside the workspace is entered, and is no way out of it."""
    with harness(base) as (workspace, root, _outside):
        (root / "mount").mkdir()
        mount("-t", "tmpfs", "tmpfs", root / "mount")
        call(workspace, "fs.write", path="mount/a/file", content="in the mount", create_parents=True)
        assert call(workspace, "fs.read", path="mount/a/file")["content"] == "in the mount"
        (root / "mount" / "out").symlink_to("../../outside/secret")
        (root / "mount" / "back").symlink_to("../mount/a/file")
        everything_refused(workspace, "mount/out", {"workspace.escape", "workspace.symlink"})
        assert call(workspace, "fs.read", path="mount/back")["content"] == "in the mount"
        (root / "mount" / ".git").mkdir()
        assert refused(workspace, "fs.write", path="mount/.git/config", content="") == "workspace.protected_name"
        mount("-o", "remount,bind,ro", root / "mount")
        assert refused(workspace, "fs.write", path="mount/new", content="") == "workspace.read_only"
        subprocess.run(["umount", root / "mount"], check=True)


def with_full_disk(base: Path) -> None:
    """A write that does not fit leaves the old file, no temporary one and no directories."""
    mount("-t", "tmpfs", "-o", "size=256k,nr_inodes=64", "tmpfs", base)
    with open_workspace(base, ()) as workspace:
        call(workspace, "fs.write", path="file", content="old content")
        for mode, path in (("overwrite", "file"), ("append", "file"), ("create", "a/b/new")):
            code = refused(workspace, "fs.write", path=path, content="x" * 400_000, mode=mode, create_parents=True)
            assert code == "workspace.disk_full"
        big = [{"old": "old", "new": "x" * 400_000}]
        assert refused(workspace, "fs.patch", path="file", edits=big) == "workspace.disk_full"
        assert (base / "file").read_text() == "old content"
        assert os.listdir(base) == ["file"]
        call(workspace, "fs.write", path="file", content="new content", mode="overwrite")


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


if __name__ == "__main__":
    {"mounts": with_mounts, "full": with_full_disk}[sys.argv[1]](Path(sys.argv[2]))
    print("blocked")
