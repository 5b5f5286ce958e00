"""An error on its way through the browser daemon's socket: what every door shows, as JSON, and the same error again."""

from typing import Any, Final

import msgspec

from palyra.errors import ExitCode, PalyraError, RemoteError, exit_code_of
from palyra.limits import KIB

# The trailing metadata of an answer that says no; the ending makes gRPC take any bytes.
ERROR_KEY: Final = "palyra-error-bin"
# gRPC refuses metadata beyond 8 KiB.
MAX_DOCUMENT_BYTES: Final = 6 * KIB
MAX_MESSAGE_CHARS: Final = 1024
MAX_HINT_CHARS: Final = 512


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    hint: str = ""
    details: dict[str, Any] = {}
    exit_code: int = 1
    http_status: int = 500


def encode_error(error: PalyraError) -> bytes:
    """The details are left out where they are too many to travel."""
    shown = error.as_dict()
    status = error.remote_http_status if isinstance(error, RemoteError) else error.http_status
    document = _Document(
        code=shown["code"],
        message=shown["message"][:MAX_MESSAGE_CHARS],
        hint=shown["hint"][:MAX_HINT_CHARS],
        details=shown.get("details", {}),
        exit_code=int(exit_code_of(error)),
        http_status=status,
    )
    encoded = msgspec.json.encode(document, enc_hook=str)
    if len(encoded) > MAX_DOCUMENT_BYTES:
        encoded = msgspec.json.encode(msgspec.structs.replace(document, details={}))
    return encoded


def decode_error(raw: bytes) -> PalyraError:
    """The error itself where its code is known here; otherwise one that keeps its code, hint and exit code."""
    document = msgspec.json.decode(raw, type=_Document)
    known = PalyraError.registry.get(document.code)
    # One that is made in another way than all others cannot be made again from what travels.
    if known is not None and known.__init__ is PalyraError.__init__:
        details = {name: value for name, value in document.details.items() if name not in ("message", "hint")}
        return known(document.message, hint=document.hint, **details)
    exit_code = document.exit_code if document.exit_code in set(ExitCode) else int(ExitCode.FAILED)
    return RemoteError(
        document.message,
        remote_code=document.code,
        hint=document.hint,
        exit_code=exit_code,
        http_status=document.http_status,
    )
