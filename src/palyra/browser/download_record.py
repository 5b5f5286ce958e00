"""What is remembered of a download, and how the folders refuse."""

from typing import Final

import msgspec

from palyra.browser.download import Folder, Reason
from palyra.errors import Denied, Failed, InvalidInput, Tampered, Unavailable
from palyra.ids import Ulid

# A site cannot fill memory with refusals: beyond this they are counted and not kept.
MAX_REFUSALS_KEPT: Final = 64
# For showing; a longer address is cut.
MAX_SOURCE_CHARS: Final = 512


class DownloadId(Ulid):
    __slots__ = ()
    noun = "download id"


class DownloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``name`` is for people. The file's own name is the id, wherever it lies. ``digest`` is the SHA-256 of it."""

    id: str
    name: str
    source: str
    declared_type: str | None
    detail: str
    size: int
    digest: str
    folder: Folder
    reasons: tuple[Reason, ...] = ()
    complete: bool = True
    finished_ms: int = 0
    released_by: str | None = None


class NoSuchDownload(InvalidInput):
    code = "browser.unknown_download"
    hint = "the session's list of downloads shows the ids there are"
    http_status = 404


class Quarantined(Denied):
    code = "browser.download_quarantined"
    hint = "an operator can look at the reasons and release it with `palyra browser downloads`"


class NotReleasable(InvalidInput):
    code = "browser.download_not_releasable"
    hint = "only a complete file in quarantine can be released; delete it, or download it again"


class DownloadChanged(Tampered):
    code = "browser.download_changed"
    hint = "the file on disk is not the one that was checked: delete it, and find out who can write there"


class DownloadRefused(Failed):
    """Nothing of it is kept; the browser must be told to stop it."""

    code = "browser.download_refused"
    hint = "the session's budget for downloads is spent, or the site declared a file above the limit"
    http_status = 409


class DownloadsUnusable(Unavailable):
    code = "browser.downloads_unusable"
    hint = "check the session's folder: it has to be the daemon's alone, on a disk with space"
