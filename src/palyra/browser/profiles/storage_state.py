"""Cookies and localStorage in the portable JSON form that Playwright reads and writes.

`{"cookies": [{name, value, domain, path, expires, httpOnly, secure, sameSite}], "origins": [{origin, localStorage}]}`.
Values are secrets here: they are shown to nobody who did not ask for the document itself. IndexedDB, which Playwright
can add, is not taken over; ``left_out`` says for which origins.
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


class StateCookie(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Secret
    domain: str
    path: str
    expires: float
    http_only: bool
    secure: bool
    same_site: SameSite
    partition_key: str = ""


class StateOrigin(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    local_storage: tuple[tuple[str, Secret], ...] = ()


class StorageState(msgspec.Struct, frozen=True, kw_only=True):
    cookies: tuple[StateCookie, ...] = ()
    origins: tuple[StateOrigin, ...] = ()
    left_out: tuple[str, ...] = ()


class _Cookie(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    domain: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    path: Annotated[str, msgspec.Meta(pattern="^/", max_length=MAX_COOKIE_BYTES)] = "/"
    expires: float = SESSION_EXPIRES
    http_only: bool = msgspec.field(name="httpOnly", default=False)
    secure: bool = False
    same_site: SameSite = msgspec.field(name="sameSite", default="Lax")
    partition_key: str = msgspec.field(name="partitionKey", default="")


class _Item(msgspec.Struct, frozen=True):
    name: str
    value: str


class _Origin(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    local_storage: Annotated[list[_Item], msgspec.Meta(max_length=MAX_ITEMS)] = msgspec.field(
        name="localStorage", default_factory=list
    )
    indexed_db: list[Any] = msgspec.field(name="indexedDB", default_factory=list)


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cookies: Annotated[list[_Cookie], msgspec.Meta(max_length=MAX_COOKIES)] = []
    origins: Annotated[list[_Origin], msgspec.Meta(max_length=MAX_ORIGINS)] = []


def read_storage_state(raw: bytes) -> StorageState:
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise StorageStateTooLarge(f"the document has {len(raw)} bytes; at most {MAX_DOCUMENT_BYTES} are read")
    try:
        document = msgspec.convert(parse_strict(raw, any_number_spelling=True), _Document)
    except NotStrictJson as error:
        raise BadStorageState(error.message) from None
    except msgspec.ValidationError as error:
        # It says where and which type, and quotes no value.
        raise BadStorageState(str(error)) from None
    return StorageState(
        cookies=tuple(map(_cookie, document.cookies)),
        origins=tuple(
            StateOrigin(
                origin=_checked_origin(each.origin),
                local_storage=tuple((item.name, Secret(item.value)) for item in each.local_storage),
            )
            for each in document.origins
        ),
        left_out=tuple(each.origin for each in document.origins if each.indexed_db),
    )


def write_storage_state(state: StorageState) -> bytes:
    """The document, in the clear: for whoever may have the logins themselves."""
    cookies = [
        _Cookie(
            name=each.name,
            value=each.value.reveal(),
            domain=each.domain,
            path=each.path,
            expires=each.expires,
            http_only=each.http_only,
            secure=each.secure,
            same_site=each.same_site,
            partition_key=each.partition_key,
        )
        for each in state.cookies
    ]
    shown: list[dict[str, Any]] = []
    for cookie in cookies:
        fields = msgspec.to_builtins(cookie)
        if not cookie.partition_key:
            del fields["partitionKey"]
        shown.append(fields)
    origins = [
        {
            "origin": each.origin,
            "localStorage": [{"name": name, "value": value.reveal()} for name, value in each.local_storage],
        }
        for each in state.origins
    ]
    return msgspec.json.encode({"cookies": shown, "origins": origins})


def to_cdp(cookie: StateCookie) -> dict[str, Any]:
    """The form of `Storage.setCookies`."""
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
    """Of `Storage.getCookies`. A cookie without a same-site rule is Lax to Chromium, and so it is written."""
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


def _cookie(raw: _Cookie) -> StateCookie:
    if len(raw.name.encode()) + len(raw.value.encode()) > MAX_COOKIE_BYTES:
        raise BadStorageState(f"the cookie {raw.name[:64]!r} is larger than a browser keeps")
    if not (raw.name + raw.value + raw.domain + raw.path).isprintable() or ";" in raw.name + raw.value + raw.path:
        raise BadStorageState(f"the cookie {raw.name[:64]!r} has characters that no cookie has")
    if raw.expires < 0 and raw.expires != SESSION_EXPIRES:
        raise BadStorageState(f"the cookie {raw.name[:64]!r} expires before 1970")
    if raw.same_site == "None" and not raw.secure:
        raise BadStorageState(f"the cookie {raw.name[:64]!r} is for all sites and not secure, which browsers refuse")
    return StateCookie(
        name=raw.name,
        value=Secret(raw.value),
        domain=raw.domain,
        path=raw.path,
        expires=raw.expires,
        http_only=raw.http_only,
        secure=raw.secure,
        same_site=raw.same_site,
        partition_key=raw.partition_key,
    )


def origin_of_url(url: str) -> str:
    """The origin of a page's address as a document names it; empty for what has none."""
    try:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        return _checked_origin(origin) if "@" not in parts.netloc else ""
    except (BadStorageState, ValueError):
        return ""


def _checked_origin(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        raise BadStorageState(f"{text[:128]!r} is not an origin") from None
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    if parts.scheme not in ("http", "https") or not host or text != f"{parts.scheme}://{host}{port}":
        raise BadStorageState(f"{text[:128]!r} is not an origin: give scheme, host and port, and nothing after it")
    return text
