"""The verdict on a finished download: from its name, the type that its server declared, and its real type.

All three must agree, or the file is quarantined with every reason found. The name that a site suggests is text for
people: it is cleaned for display and never becomes part of a path.
"""

import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from palyra.browser.domain.content_sniffing import Content, Sniffed
from palyra.errors import Denied, Failed, InvalidInput, Tampered, Unavailable
from palyra.ids import Ulid

# Every file system can hold it, and a person can read it.
MAX_NAME_BYTES: Final = 120
MAX_EXTENSION_CHARS: Final = 12
# A longer media type is no media type.
MAX_TYPE_CHARS: Final = 128
NAMELESS: Final = "download"

# Overrides, embeddings and isolates: they make `exe.txt` look like another name. Plain direction marks do not.
_TURNING: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSHOWN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_SEPARATORS: Final = re.compile(r"[/\\]")
_FORBIDDEN: Final = re.compile(r'[<>:"|?*]')
_SPACES: Final = re.compile(r"\s+")
# Devices to Windows, whatever stands after the dot.
_DEVICES: Final = frozenset(
    ("con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10)))
)

# Types that say only "a file": they agree with everything.
_GENERIC: Final = frozenset(
    ("application/octet-stream", "binary/octet-stream", "application/download", "application/force-download")
)
# Endings that run or render something when opened. Anywhere but at the end they are there to deceive.
_ACTIVE_ENDINGS: Final = (
    "app apk bat bin chm cmd com cpl deb dll dmg dylib elf exe gadget hta htm html inf iso jar js jse lnk mht "
    "mhtml mjs msc msi msp ocx php pif pkg pl ps1 psm1 py pyc rb reg rpm scf scr sh shtml so svg svgz swf sys url "
    "vb vbe vbs wasm ws wsf wsh xhtml xht xml xsl xll"
)
_ACTIVE: Final = frozenset(_ACTIVE_ENDINGS.split())


class UnknownFileType(InvalidInput):
    code = "browser.unknown_file_type"
    hint = "only endings whose content can be checked may be allowed"


class Folder(StrEnum):
    ALLOWLIST = "allowlist"
    QUARANTINE = "quarantine"
    # Not kept at all.
    REFUSED = "refused"


class Reason(StrEnum):
    """Stable: they appear in the API and the journal. Verdicts list them in this order."""

    FILES_SPENT = "session_files_spent"
    BYTES_SPENT = "session_bytes_spent"
    NOT_A_FILE = "not_a_regular_file"
    TOO_LARGE = "too_large"
    INCOMPLETE = "incomplete"
    EXECUTABLE = "executable"
    SCRIPT = "script"
    MARKUP = "active_markup"
    POLYGLOT = "two_types_at_once"
    MISLEADING_NAME = "misleading_name"
    DOUBLE_EXTENSION = "double_extension"
    EXTENSION = "extension_not_allowed"
    DECLARED = "declared_type_disagrees"
    CONTENT = "content_disagrees"


class FileType(msgspec.Struct, frozen=True):
    declared: frozenset[str]
    content: frozenset[Content]


def _type(content: str, *declared: str) -> FileType:
    return FileType(frozenset(declared), frozenset(map(Content, content.split())))


_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
# Every ending that may be allowed at all, with the types that servers honestly declare for it and its content.
KNOWN_TYPES: Final[dict[str, FileType]] = {
    ".txt": _type("text json", "text/plain"),
    ".csv": _type(
        "text", "text/csv", "text/plain", "application/csv", "application/vnd.ms-excel", "text/comma-separated-values"
    ),
    ".pdf": _type("pdf", "application/pdf", "application/x-pdf"),
    ".json": _type("json", "application/json", "text/json", "text/plain"),
    ".tsv": _type("text", "text/tab-separated-values", "text/plain"),
    ".md": _type("text", "text/markdown", "text/plain"),
    ".log": _type("text json", "text/plain"),
    ".png": _type("png", "image/png"),
    ".jpg": _type("jpeg", "image/jpeg"),
    ".jpeg": _type("jpeg", "image/jpeg"),
    ".gif": _type("gif", "image/gif"),
    ".webp": _type("webp", "image/webp"),
    ".zip": _type("zip", "application/zip", "application/x-zip-compressed"),
    ".xlsx": _type("xlsx", f"{_OFFICE}.spreadsheetml.sheet"),
    ".docx": _type("docx", f"{_OFFICE}.wordprocessingml.document"),
    ".pptx": _type("pptx", f"{_OFFICE}.presentationml.presentation"),
}
DEFAULT_EXTENSIONS: Final = (".txt", ".csv", ".pdf", ".json")

_DANGERS: Final = {
    Content.EXECUTABLE: Reason.EXECUTABLE,
    Content.SCRIPT: Reason.SCRIPT,
    Content.MARKUP: Reason.MARKUP,
}


class DownloadRules(msgspec.Struct, frozen=True):
    """The allowed endings. ``rules`` adds only endings whose content can be checked."""

    extensions: frozenset[str] = frozenset(DEFAULT_EXTENSIONS)


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """A file that has arrived, or the part of it that has."""

    suggested_name: str
    declared_type: str | None
    sniffed: Sniffed
    complete: bool = True
    too_large: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    folder: Folder
    reasons: tuple[Reason, ...] = ()


def rules(extra: Iterable[str] = ()) -> DownloadRules:
    wanted = {*DEFAULT_EXTENSIONS}
    for raw in extra:
        ending = "." + raw.strip().lower().removeprefix(".")
        if ending not in KNOWN_TYPES:
            raise UnknownFileType(f"{raw[:32]!r} is not an ending that can be allowed")
        wanted.add(ending)
    return DownloadRules(frozenset(wanted))


def to_display_name(suggested: str) -> str:
    """Return one line of visible characters without separators. It keeps the ending and is safe to save under."""
    name = _SEPARATORS.split(unicodedata.normalize("NFC", suggested))[-1]
    name = "".join(char for char in name if unicodedata.category(char) not in _UNSHOWN)
    name = _SPACES.sub(" ", _FORBIDDEN.sub("_", name)).strip(" .")
    if not name:
        return NAMELESS
    if name.partition(".")[0].strip().lower() in _DEVICES:
        name = "_" + name
    stem, ending = _split(name)
    room = MAX_NAME_BYTES - len(ending.encode())
    return stem.encode()[:room].decode(errors="ignore").rstrip(" .") + ending


def extension_of(suggested: str) -> str:
    return _split(to_display_name(suggested))[1].lower()


def judge(arrived: Arrived, allowed: DownloadRules) -> Verdict:
    """Find every reason against the file, in the order of ``Reason``. A file without one is allowed."""
    found: set[Reason] = set()
    if arrived.too_large:
        found.add(Reason.TOO_LARGE)
    if not arrived.complete:
        found.add(Reason.INCOMPLETE)
    found |= _of_name(arrived.suggested_name)
    found |= _of_types(arrived, allowed)
    return Verdict(
        folder=Folder.QUARANTINE if found else Folder.ALLOWLIST,
        reasons=tuple(reason for reason in Reason if reason in found),
    )


def _of_name(suggested: str) -> set[Reason]:
    found: set[Reason] = set()
    if _TURNING.intersection(suggested):
        found.add(Reason.MISLEADING_NAME)
    endings = to_display_name(suggested).lower().split(".")[1:]
    if any(ending.strip() in _ACTIVE for ending in endings[:-1]):
        found.add(Reason.DOUBLE_EXTENSION)
    if len(endings) > 1 and endings[-1] in _ACTIVE and f".{endings[-2].strip()}" in KNOWN_TYPES:
        found.add(Reason.DOUBLE_EXTENSION)
    return found


def _of_types(arrived: Arrived, allowed: DownloadRules) -> set[Reason]:
    found: set[Reason] = {_DANGERS[kind] for kind in arrived.sniffed.kinds if kind in _DANGERS}
    if arrived.sniffed.polyglot:
        found.add(Reason.POLYGLOT)
    ending = extension_of(arrived.suggested_name)
    if ending not in allowed.extensions or ending not in KNOWN_TYPES:
        return found | {Reason.EXTENSION}
    expected = KNOWN_TYPES[ending]
    declared = essence(arrived.declared_type)
    if declared is not None and declared not in _GENERIC and declared not in expected.declared:
        found.add(Reason.DECLARED)
    # A part of a file is not judged by its content.
    if arrived.complete and not expected.content & arrived.sniffed.kinds:
        found.add(Reason.CONTENT)
    return found


def essence(declared: str | None) -> str | None:
    if declared is None:
        return None
    return declared.partition(";")[0].strip().lower()[:MAX_TYPE_CHARS] or None


def _split(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    if not dot or not stem or not ending or len(ending) > MAX_EXTENSION_CHARS:
        return name, ""
    return stem, dot + ending


# A site cannot fill memory with refusals: beyond this number they are counted and not kept.
MAX_REFUSALS_KEPT: Final = 64
# A longer address is cut.
MAX_SOURCE_CHARS: Final = 512


class DownloadId(Ulid):
    __slots__ = ()
    noun = "download id"


class DownloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``name`` is for people; the file itself is named by ``id``. ``digest`` is its SHA-256."""

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
    """Nothing of the download is kept, and the browser has to stop it."""

    code = "browser.download_refused"
    hint = "the session's budget for downloads is spent, or the site declared a file above the limit"
    http_status = 409


class DownloadsUnusable(Unavailable):
    code = "browser.downloads_unusable"
    hint = "check the session's folder: it has to be the daemon's alone, on a disk with space"
