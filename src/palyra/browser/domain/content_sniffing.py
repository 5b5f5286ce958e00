"""The type of a file, found from its bytes alone.

Own checks cover everything that runs or renders and the types that may be allowed. `puremagic` names the rest. A type
counts only from the first byte on: one file is made to be two by a type that readers also find further in.
"""

import io
import re
import zipfile
from enum import StrEnum
from typing import Final

import msgspec

# Browsers look this far into text for markup. We also search it for a script's first lines.
TEXT_HEAD_CHARS: Final = 1_500
# A PDF's end mark stands this near to its end, with room for a signature's padding.
PDF_TAIL_BYTES: Final = 2_048
# The end record of a ZIP file with the longest comment.
ZIP_TAIL_BYTES: Final = 22 + 65_535
# Names looked at in an office file.
MAX_ZIP_NAMES: Final = 4_096
# Below this `puremagic` has matched two or three bytes, which ordinary text begins with by chance.
MIN_CONFIDENCE: Final = 0.4


class Content(StrEnum):
    TEXT = "text"
    JSON = "json"
    PDF = "pdf"
    PNG = "png"
    JPEG = "jpeg"
    GIF = "gif"
    WEBP = "webp"
    ZIP = "zip"
    XLSX = "xlsx"
    DOCX = "docx"
    PPTX = "pptx"
    EXECUTABLE = "executable"
    SCRIPT = "script"
    MARKUP = "markup"
    OTHER = "other"


class Sniffed(msgspec.Struct, frozen=True):
    """``kinds`` has several members for content that honestly is several types: a number is JSON and text."""

    kinds: frozenset[Content]
    detail: str = ""
    polyglot: bool = False


_EXECUTABLES: Final = (
    (b"\x7fELF", "ELF program"),
    (b"\xfe\xed\xfa\xce", "Mach-O program"),
    (b"\xfe\xed\xfa\xcf", "Mach-O program"),
    (b"\xce\xfa\xed\xfe", "Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"\x00asm", "WebAssembly module"),
    (b"dex\n", "Android program"),
    (b"L\x00\x00\x00\x01\x14\x02\x00", "Windows shortcut"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old office file or installer, which can hold macros"),
    (b"MSCF", "Windows cabinet"),
    (b"!<arch>\n", "Debian package or library"),
    (b"\xed\xab\xee\xdb", "RPM package"),
    (b"{\\rtf", "rich text, which can hold objects"),
)
_PICTURES: Final = (
    (b"\x89PNG\r\n\x1a\n", Content.PNG),
    (b"\xff\xd8\xff", Content.JPEG),
    (b"GIF87a", Content.GIF),
    (b"GIF89a", Content.GIF),
)
_ZIP_MARK: Final = b"PK\x03\x04"
_ZIP_END: Final = b"PK\x05\x06"
_OFFICE: Final = (("xl/", Content.XLSX), ("word/", Content.DOCX), ("ppt/", Content.PPTX))
_BYTE_ORDER: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
# Control characters that honest text does not have.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
# Tags that make browsers read a text as HTML or SVG. The first list counts only at the beginning of the text.
_LEADING_TAG: Final = re.compile(
    r"(?:<!--.*?-->\s*)*<(?:!doctype|[?]xml|!--|(?:html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|img|"
    r"svg|math|object|embed|link|meta|form|base|frameset)[\s/>])",
    re.IGNORECASE | re.DOTALL,
)
_ANY_TAG: Final = re.compile(r"<(?:!doctype\s+html|(?:html|script|iframe|svg|body|object|embed)[\s/>])", re.IGNORECASE)
_SCRIPT_START: Final = re.compile(
    r"#!|<\?php|<\?=|<%|@echo\s+off|(?:rem|::)\s|option\s+explicit|windows registry editor|\[internetshortcut\]|"
    r"\[autorun\]|set-executionpolicy|on error resume next|\s*param\s*\(|"
    r"from\s+\w+\s+import\s|import\s+(?:os|sys|subprocess)\b",
    re.IGNORECASE,
)
_SCRIPT_BODY: Final = re.compile(
    r"createobject\s*\(|activexobject|wscript\.shell|invoke-expression|new-object\s+net\.webclient|frombase64string|"
    r"powershell(?:\.exe)?\s+-|cmd(?:\.exe)?\s+/c\s",
    re.IGNORECASE,
)


def sniff(data: bytes) -> Sniffed:
    found = _binary(data) or _text(data) or Sniffed(frozenset((Content.OTHER,)), _named(data))
    if data[:4] != _ZIP_MARK and _ZIP_END in data[-ZIP_TAIL_BYTES:]:
        return Sniffed(found.kinds, "a ZIP archive stands at the end", polyglot=True)
    return found


def _binary(data: bytes) -> Sniffed | None:
    for mark, what in _EXECUTABLES:
        if data.startswith(mark):
            return _one(Content.EXECUTABLE, what)
    if _is_windows_program(data):
        return _one(Content.EXECUTABLE, "Windows program")
    if data.startswith(b"%PDF-"):
        ends = b"%%EOF" in data[-PDF_TAIL_BYTES:]
        return _one(Content.PDF if ends else Content.OTHER, "PDF" if ends else "PDF without an end")
    for mark, kind in _PICTURES:
        if data.startswith(mark):
            return _picture(data, kind)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _picture(data, Content.WEBP)
    return _zip(data) if data.startswith((_ZIP_MARK, _ZIP_END)) else None


def _is_windows_program(data: bytes) -> bool:
    """Tell a program from text that begins with `MZ`: a program has header bytes that text has not."""
    return data.startswith((b"MZ", b"ZM")) and (len(data) < 64 or b"\x00" in data[2:64])


def _picture(data: bytes, kind: Content) -> Sniffed:
    """Mark a picture whose bytes are also a page or a script. Old browsers took such a file for either."""
    head = data[:TEXT_HEAD_CHARS].decode("latin-1")
    return Sniffed(frozenset((kind,)), str(kind), polyglot=bool(_ANY_TAG.search(head) or "<?php" in head.lower()))


def _zip(data: bytes) -> Sniffed:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()[:MAX_ZIP_NAMES]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, EOFError):
        return _one(Content.OTHER, "damaged ZIP archive")
    lowered = [name.lower() for name in names]
    if "meta-inf/manifest.mf" in lowered or "androidmanifest.xml" in lowered or "classes.dex" in lowered:
        return _one(Content.EXECUTABLE, "Java or Android archive")
    if any(name.endswith(("vbaproject.bin", ".exe", ".dll")) for name in lowered) and "[content_types].xml" in lowered:
        return _one(Content.EXECUTABLE, "office file with macros or programs")
    if "[content_types].xml" in lowered:
        for folder, kind in _OFFICE:
            if any(name.startswith(folder) for name in lowered):
                return _one(kind, str(kind))
    return _one(Content.ZIP, "ZIP archive")


def _text(data: bytes) -> Sniffed | None:
    text = _decoded(data)
    if text is None:
        return None
    begun = text.lstrip()
    head = begun[:TEXT_HEAD_CHARS]
    is_json = _is_json(text)
    if is_json and begun[:1] in ("{", "["):
        return _one(Content.JSON, "JSON")
    if _LEADING_TAG.match(head) or _ANY_TAG.search(head):
        return _one(Content.MARKUP, "HTML, SVG or XML")
    if _SCRIPT_START.match(head) or _SCRIPT_BODY.search(head):
        return _one(Content.SCRIPT, "script")
    return Sniffed(frozenset((Content.TEXT, Content.JSON) if is_json else (Content.TEXT,)), "text")


def _decoded(data: bytes) -> str | None:
    """Decode UTF-8, UTF-16 with a mark, or the Latin of old CSV files. None for anything that a person did not type."""
    for mark, encoding in _BYTE_ORDER:
        if data.startswith(mark):
            encodings: tuple[str, ...] = (encoding,)
            data = data.removeprefix(mark)
            break
    else:
        encodings = ("utf-8", "cp1252")
    for encoding in encodings:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return None if _CONTROLS.search(text) else text
    return None


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _named(data: bytes) -> str:
    import puremagic

    try:
        matches = puremagic.magic_string(data)
    except (puremagic.PureError, ValueError):
        return "unknown"
    likely = [match for match in matches if match.confidence >= MIN_CONFIDENCE and match.name]
    return likely[0].name[:80] if likely else "unknown"


def _one(kind: Content, detail: str) -> Sniffed:
    return Sniffed(frozenset((kind,)), detail)
