"""Cookies and localStorage in the portable JSON form that Playwright reads and writes.

`{"cookies": [{name, value, domain, path, expires, httpOnly, secure, sameSite}], "origins": [{origin,
localStorage}]}`. Values are secrets here: only a caller who requested the document gets them. IndexedDB, which
Playwright can add, is not imported; ``left_out`` has the origins.
"""

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from palyra.errors import InvalidInput, LimitExceeded
from palyra.limits import MIB
from palyra.secret import Secret
from palyra.strict_json import NotStrictJson, parse_strict

MAX_DOCUMENT_BYTES: Final = 8 * MIB
# Chromium itself keeps 3,300 in all.
MAX_COOKIES: Final = 3_300
# Chromium's limit for name and value together.
MAX_COOKIE_BYTES: Final = 4_096
MAX_ORIGINS: Final = 512
MAX_ITEMS: Final = 10_000
# Till the browser is closed.
SESSION_EXPIRES: Final = -1

SameSite = Literal["Strict", "Lax", "None"]


class BadStorageState(InvalidInput):
    code = "browser.bad_storage_state"
    hint = "give a document as Playwright's `storage_state` writes it"


class StorageStateTooLarge(LimitExceeded):
    code = "browser.storage_state_too_large"
    hint = "leave out sites that are not needed"
    http_status = 413


class StateCookie(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"http_only": "httpOnly", "same_site": "sameSite", "partition_key": "partitionKey"},
):
    name: str
    value: Secret
    domain: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    path: Annotated[str, msgspec.Meta(pattern="^/", max_length=MAX_COOKIE_BYTES)] = "/"
    expires: float = SESSION_EXPIRES
    http_only: bool = False
    secure: bool = False
    same_site: SameSite = "Lax"
    partition_key: str = ""


class StorageItem(msgspec.Struct, frozen=True):
    name: str
    value: Secret


class StateOrigin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    origin: str
    local_storage: Annotated[tuple[StorageItem, ...], msgspec.Meta(max_length=MAX_ITEMS)] = ()
    indexed_db: tuple[Any, ...] = msgspec.field(name="indexedDB", default=())


class StorageState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cookies: Annotated[tuple[StateCookie, ...], msgspec.Meta(max_length=MAX_COOKIES)] = ()
    origins: Annotated[tuple[StateOrigin, ...], msgspec.Meta(max_length=MAX_ORIGINS)] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(each.origin for each in self.origins if each.indexed_db)


def read_storage_state(raw: bytes) -> StorageState:
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise StorageStateTooLarge(f"the document has {len(raw)} bytes; at most {MAX_DOCUMENT_BYTES} are read")
    try:
        state = msgspec.convert(parse_strict(raw, any_number_spelling=True), StorageState, dec_hook=_to_secret)
    except NotStrictJson as error:
        raise BadStorageState(error.message) from None
    except msgspec.ValidationError as error:
        # The text has the place and the type, and quotes no value.
        raise BadStorageState(str(error)) from None
    for cookie in state.cookies:
        _check_cookie(cookie)
    for each in state.origins:
        _check_origin(each.origin)
    return state


def _to_secret(_: type, value: Any) -> Secret:
    if not isinstance(value, str):
        raise TypeError("Expected `str`")
    return Secret(value)


def write_storage_state(state: StorageState) -> bytes:
    """Write the document with the logins in the clear."""
    cookies = []
    for cookie in state.cookies:
        fields = msgspec.to_builtins(cookie, enc_hook=Secret.reveal)
        if not cookie.partition_key:
            del fields["partitionKey"]
        cookies.append(fields)
    origins = [
        {"origin": each.origin, "localStorage": msgspec.to_builtins(each.local_storage, enc_hook=Secret.reveal)}
        for each in state.origins
    ]
    return msgspec.json.encode({"cookies": cookies, "origins": origins})


def to_cdp(cookie: StateCookie) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": cookie.name,
        "value": cookie.value.reveal(),
        "domain": cookie.domain,
        "path": cookie.path,
        "httpOnly": cookie.http_only,
        "secure": cookie.secure,
        "sameSite": cookie.same_site,
    }
    if cookie.expires != SESSION_EXPIRES:
        fields["expires"] = cookie.expires
    if cookie.partition_key:
        fields["partitionKey"] = {"topLevelSite": cookie.partition_key, "hasCrossSiteAncestor": False}
    return fields


def from_cdp(fields: dict[str, Any]) -> StateCookie:
    """Convert from `Storage.getCookies`. Chromium treats a cookie without a same-site rule as Lax."""
    partition = fields.get("partitionKey") or {}
    return StateCookie(
        name=fields["name"],
        value=Secret(fields["value"]),
        domain=fields["domain"],
        path=fields["path"],
        expires=SESSION_EXPIRES if fields.get("session") else fields.get("expires", SESSION_EXPIRES),
        http_only=bool(fields.get("httpOnly")),
        secure=bool(fields.get("secure")),
        same_site=fields.get("sameSite", "Lax"),
        partition_key=partition.get("topLevelSite", "") if isinstance(partition, dict) else str(partition),
    )


def _check_cookie(cookie: StateCookie) -> None:
    value, shown = cookie.value.reveal(), repr(cookie.name[:64])
    if len(cookie.name.encode()) + len(value.encode()) > MAX_COOKIE_BYTES:
        raise BadStorageState(f"the cookie {shown} is larger than a browser keeps")
    texts = cookie.name + value + cookie.path
    if not (texts + cookie.domain).isprintable() or ";" in texts:
        raise BadStorageState(f"the cookie {shown} has characters that no cookie has")
    if cookie.expires < 0 and cookie.expires != SESSION_EXPIRES:
        raise BadStorageState(f"the cookie {shown} expires before 1970")
    if cookie.same_site == "None" and not cookie.secure:
        raise BadStorageState(f"the cookie {shown} is for all sites and not secure, which browsers refuse")


def origin_of_url(url: str) -> str:
    """Return the origin of a page's address, or an empty text."""
    try:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        return _check_origin(origin) if "@" not in parts.netloc else ""
    except (BadStorageState, ValueError):
        return ""


def _check_origin(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        raise BadStorageState(f"{text[:128]!r} is not an origin") from None
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    if parts.scheme not in ("http", "https") or not host or text != f"{parts.scheme}://{host}{port}":
        raise BadStorageState(f"{text[:128]!r} is not an origin: give scheme, host and port, and nothing after it")
    return text
