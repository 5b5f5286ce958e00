"""The refusals of the file tools, and the one translation from errno to a refusal."""

import errno
from typing import Final

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, PalyraError, Unavailable


class BadRoot(InvalidInput):
    code = "workspace.bad_root"
    hint = "name an existing directory that this program may enter"


class BadArgument(InvalidInput):
    code = "workspace.bad_argument"
    hint = "see the tool's input schema"


class BadPattern(InvalidInput):
    code = "workspace.bad_pattern"
    hint = "regular expressions use Python's syntax; globs know *, ?, [..], ** and {a,b}"


class Escape(Denied):
    code = "workspace.escape"
    hint = "the path leads out of the workspace; only what lies beneath its root can be used"


class SymlinkRefused(Denied):
    code = "workspace.symlink"
    hint = "name the file itself: a link is never written through, and kernel magic links are never followed"


class ReadOnly(Denied):
    code = "workspace.read_only"
    hint = "this workspace was opened for reading only"


class NotFound(Failed):
    code = "workspace.not_found"
    hint = "use fs.list to see the files; fs.write makes missing directories with create_parents"


class AlreadyExists(Failed):
    code = "workspace.exists"
    hint = 'pass mode "overwrite" or "append" to change an existing file'


class NotRegular(Failed):
    code = "workspace.not_regular"
    hint = "only regular files are read and written; directories are for fs.list"


class NotDirectory(Failed):
    code = "workspace.not_directory"
    hint = "a component of the path is a file where a directory is needed"


class NoPermission(Failed):
    code = "workspace.no_permission"
    hint = "the operating system refuses this to the user that Palyra runs as"


class NotText(Failed):
    code = "workspace.not_text"
    hint = 'the bytes are not UTF-8; read them with encoding "base64"'


class PlaceChanged(Failed):
    code = "workspace.place_changed"
    hint = "make the call again: its path led to another place when it was decided"
    http_status = 409


class Changed(Failed):
    code = "workspace.changed"
    hint = "the file is not what the caller last saw; read it again"


class IoFailed(Failed):
    code = "workspace.io"
    hint = "the operating system reported an error; the old file is unchanged"


class Cancelled(Failed):
    code = "workspace.cancelled"
    hint = "the call was cancelled or its deadline passed; the old file is unchanged"


class FileTooLarge(LimitExceeded):
    code = "workspace.file_too_large"
    hint = "read large files in parts with offset and limit; change them with a program in the sandbox"


class DiskFull(Unavailable):
    code = "workspace.disk_full"
    hint = "there is no room for the new file; the old one is unchanged"


class Busy(Unavailable):
    code = "workspace.busy"
    hint = "the directories of this path are being moved; try again"


class Openat2Missing(Unavailable):
    code = "workspace.openat2_missing"
    hint = "the openat2 layer needs Linux 5.6 or newer and a seccomp profile that allows openat2(2)"


class ProcMissing(Unavailable):
    code = "workspace.proc_missing"
    hint = "mount a /proc of this process's own pid namespace"


class RegexUnavailable(Unavailable):
    code = "workspace.regex_unavailable"
    hint = "the process that runs regular expressions could not be started; search for plain text instead"


_BY_ERRNO: Final[dict[int, tuple[type[PalyraError], str]]] = {
    errno.EXDEV: (Escape, "leads out of the workspace"),
    errno.ELOOP: (SymlinkRefused, "is or passes a link that is not followed"),
    errno.ENOENT: (NotFound, "does not exist"),
    errno.EEXIST: (AlreadyExists, "exists already"),
    errno.EISDIR: (NotRegular, "is a directory"),
    errno.ENXIO: (NotRegular, "is a pipe, a socket or a device"),
    errno.ENODEV: (NotRegular, "is a device"),
    errno.ENOTDIR: (NotDirectory, "passes a file that is not a directory"),
    errno.EACCES: (NoPermission, "may not be accessed"),
    errno.EPERM: (NoPermission, "may not be accessed"),
    errno.EROFS: (ReadOnly, "is on a read-only file system"),
    errno.ENOSPC: (DiskFull, "does not fit on the disk"),
    errno.EDQUOT: (DiskFull, "does not fit in the disk quota"),
    errno.EFBIG: (DiskFull, "is larger than a file may be here"),
    errno.EAGAIN: (Busy, "is being moved while it is opened"),
    errno.ESTALE: (Busy, "was moved while it was opened"),
    errno.ENAMETOOLONG: (BadArgument, "has a name that this file system cannot hold"),
    errno.ENOSYS: (Openat2Missing, "cannot be opened: the kernel has no openat2"),
}


def translate_oserror(error: OSError, shown: str) -> PalyraError:
    """Translate an operating system error at the path ``shown``."""
    kind, what = _BY_ERRNO.get(error.errno or 0, (IoFailed, f"failed: {error.strerror}"))
    return kind(f"{shown} {what}", path=shown)
