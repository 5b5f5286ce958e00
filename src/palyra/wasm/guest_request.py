"""A guest's question to the outside, judged by its shape before anybody is asked. The worker is not trusted."""

import re
from typing import Final

from palyra.wasm.abi import Status
from palyra.wasm.grants import Capability, CapabilityGrantSet
from palyra.wasm.limits import (
    MAX_ATTACHED_SECRETS,
    MAX_HEADER_BYTES,
    MAX_HEADER_COUNT,
    MAX_STORAGE_KEY_BYTES,
    RuntimeLimits,
)
from palyra.wasm.ports import AttachedSecret, GuestRequest
from palyra.wasm.wire import Ask

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
# Visible ASCII, with spaces and tabs. A header value with anything else is read differently by different programs.
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*\Z")
_PATH: Final = re.compile(r"/[\x21-\x7e]*\Z")
# The connection, the length and the host are the requester's to say.
_RESERVED: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"),
        *("keep-alive", "proxy-authorization", "proxy-connection", "proxy-authenticate"),
    }
)
_KEY: Final = re.compile(r"[^\x00-\x1f\x7f\\]+\Z")

KIND_OF: Final = {
    "http": Capability.HTTP,
    "secret-reveal": Capability.SECRET,
    "storage-get": Capability.STORAGE,
    "storage-put": Capability.STORAGE,
    "storage-delete": Capability.STORAGE,
    "storage-list": Capability.STORAGE,
    "channel-send": Capability.CHANNEL,
}


def check_key(key: str, *, may_be_empty: bool = False) -> Status:
    """A key is a relative path of ordinary names; ``may_be_empty`` for the prefix of a listing."""
    if may_be_empty and not key:
        return Status.OK
    if len(key.encode("utf-8", "surrogatepass")) > MAX_STORAGE_KEY_BYTES:
        return Status.TOO_LARGE
    if not _KEY.match(key) or any("\ud800" <= character <= "\udfff" for character in key):
        return Status.BAD_REQUEST
    names = key.split("/")
    if may_be_empty and names[-1] == "":
        names.pop()
    return Status.BAD_REQUEST if any(name in ("", ".", "..") for name in names) else Status.OK


def _good_header(name: str, value: str) -> bool:
    return bool(_TOKEN.match(name) and _VALUE.match(value)) and name.lower() not in _RESERVED


def guest_request(ask: Ask, grants: CapabilityGrantSet, limits: RuntimeLimits) -> GuestRequest | Status:
    size = len(ask.key) + sum(len(name) + len(value) for name, value in ask.headers)
    size += sum(len(attached.header) + len(attached.prefix) for attached in ask.attachments)
    if (
        size > MAX_HEADER_BYTES
        or len(ask.headers) > MAX_HEADER_COUNT
        or len(ask.attachments) > MAX_ATTACHED_SECRETS
        or len(ask.body) > limits.max_request_bytes
    ):
        return Status.TOO_LARGE
    if ask.method not in _METHODS or not _PATH.match(ask.key):
        return Status.BAD_REQUEST
    secrets = []
    for attached in ask.attachments:
        grant = grants.resolve(Capability.SECRET, attached.secret)
        if grant is None:
            return Status.BAD_HANDLE
        secrets.append(AttachedSecret(secret=grant, header=attached.header, prefix=attached.prefix))
    if not all(_good_header(name, value) for name, value in ask.headers):
        return Status.BAD_REQUEST
    # A header that carries a secret is there once: a guest's own of the same name could make a server echo either.
    names = [secret.header.lower() for secret in secrets]
    taken = {name.lower() for name, _ in ask.headers}
    if len(set(names)) != len(names) or taken & set(names):
        return Status.BAD_REQUEST
    if not all(_good_header(secret.header, secret.prefix) for secret in secrets):
        return Status.BAD_REQUEST
    return GuestRequest(
        method=ask.method,
        path=ask.key,
        headers=ask.headers,
        body=ask.body,
        secrets=tuple(secrets),
        max_response_bytes=limits.max_response_bytes,
    )
