"""What a link tells and is told, as values: the messages of the wire, read and bounded once."""

import re
from typing import Final

import msgspec

from palyra.nodes.host.messages import Dispatch, Offer
from palyra.nodes.rpc_limits import MAX_CAPABILITY_NAME_CHARS, MAX_INPUT_BYTES
from palyra.secret import Secret

# A request's id names a file of this device.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class LinkCredentials(msgspec.Struct, frozen=True, kw_only=True):
    key_pem: Secret
    certificate_pem: str
    ca_bundle_pem: str


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    device_id: str
    display_name: str
    platform: str
    software_version: str
    offers: tuple[Offer, ...]
    open_request_ids: tuple[str, ...] = ()


class RenewedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    certificate_pem: str
    ca_bundle_pem: str
    generation: int


class Acknowledged(msgspec.Struct, frozen=True):
    sequence: int


class Dispatched(msgspec.Struct, frozen=True):
    dispatch: Dispatch


class Cancelled(msgspec.Struct, frozen=True):
    request_id: str


class AuthoritiesChanged(msgspec.Struct, frozen=True):
    ca_bundle_pem: str
    renew_now: bool


class Dismissed(msgspec.Struct, frozen=True):
    code: str


Heard = Acknowledged | Dispatched | Cancelled | AuthoritiesChanged | Dismissed


def is_request_id(text: str) -> bool:
    return _REQUEST_ID.fullmatch(text) is not None


def is_sound(dispatch: Dispatch) -> bool:
    """Whether a dispatch could be an honest daemon's. One that is not has no id that could be answered to."""
    return (
        is_request_id(dispatch.request_id)
        and 0 < len(dispatch.capability) <= MAX_CAPABILITY_NAME_CHARS
        and len(dispatch.input_json) <= MAX_INPUT_BYTES
        and dispatch.timeout_ms > 0
    )
