"""Paths as agents write them, parsed once, and the spelling in which any name may be shown.

A ``WorkspacePath`` is relative, has no ``..``, no NUL and no empty name, and fits the kernel's limits. It says nothing
about what is on disk: links are the business of the descriptor that resolves it.
"""

import unicodedata
from typing import Self

import msgspec

from palyra.errors import InvalidInput
from palyra.workspace.limits import NAME_MAX_BYTES, PATH_MAX_BYTES

_SHOWN_IN_ERRORS = 200
_LAST_C0 = 0x1F
_DELETE = 0x7F
# Controls, format characters (bidirectional overrides among them), surrogates, unassigned, line and paragraph breaks.
_UNSHOWABLE = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})


class BadPath(InvalidInput):
    code = "workspace.bad_path"
    hint = "write a path relative to the workspace, such as src/main.py, without .. and without a leading /"


class PathTooLong(InvalidInput):
    code = "workspace.path_too_long"
    hint = f"a path has fewer than {PATH_MAX_BYTES} bytes and each name in it at most {NAME_MAX_BYTES}"


class WorkspacePath(msgspec.Struct, frozen=True):
    """Names beneath the root, outermost first. No names at all is the root itself."""

    names: tuple[str, ...]

    @classmethod
    def parse(cls, raw: str) -> Self:
        """Accepts ``a/b``, ``./a//b/`` (the same path) and ``.`` (the root)."""
        if not raw:
            raise BadPath("the path is empty")
        if "\0" in raw:
            raise BadPath("the path has a NUL character", path=shown(raw[:_SHOWN_IN_ERRORS]))
        try:
            encoded = raw.encode()
        except UnicodeEncodeError:
            raise BadPath("the path is not valid Unicode", path=shown(raw[:_SHOWN_IN_ERRORS])) from None
        if len(encoded) >= PATH_MAX_BYTES:
            raise PathTooLong(f"the path has {len(encoded)} bytes", bytes=len(encoded))
        if raw.startswith("/"):
            raise BadPath("the path is absolute", path=shown(raw[:_SHOWN_IN_ERRORS]))
        names = tuple(name for name in raw.split("/") if name not in ("", "."))
        for name in names:
            if name == "..":
                raise BadPath("the path has a .. component", path=shown(raw[:_SHOWN_IN_ERRORS]))
            if len(name.encode()) > NAME_MAX_BYTES:
                raise PathTooLong(f"a name in the path has {len(name.encode())} bytes", bytes=len(name.encode()))
        return cls(names)

    def __str__(self) -> str:
        return "/".join(self.names) or "."

    def encoded(self) -> bytes:
        """The bytes that the kernel is given."""
        return encode_name(str(self))

    def shown(self) -> str:
        return shown(str(self))


def encode_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def decode_name(raw: bytes) -> str:
    """Any bytes as text, losslessly: what is not UTF-8 becomes lone surrogates, which ``shown`` escapes."""
    return raw.decode("utf-8", "surrogateescape")


def is_plain(name: str) -> bool:
    """Whether ``shown`` leaves the name as it is."""
    if name.isascii():
        return name.isprintable()
    return not any(unicodedata.category(char) in _UNSHOWABLE for char in name)


def shown(name: str) -> str:
    r"""The name in one line of harmless text.

    A name with nothing to hide is shown as it is, backslashes included. Otherwise bytes that are not UTF-8 and ASCII
    controls become ``\xNN``, other unshowable characters ``\uNNNN``, and backslashes are doubled.
    """
    return name if is_plain(name) else "".join(map(_escaped, name))


def _escaped(char: str) -> str:
    if char == "\\":
        return "\\\\"
    number = ord(char)
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    if number <= _LAST_C0 or number == _DELETE:
        return f"\\x{number:02x}"
    if unicodedata.category(char) in _UNSHOWABLE:
        return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
    return char
