"""The values of the node host: offers, requests, notes, errors, and the commands of its machine."""

import re
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from palyra.devicelink.limits import MAX_CAPABILITY_NAME_CHARS, MAX_INPUT_BYTES
from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, Unavailable

# Errors on the device. Their codes also go to the daemon and into its journal.


class CertificateExpired(Denied):
    code = "nodes.certificate_expired"
    hint = "the device was away for longer than its certificate lasts: `palyra node leave --forget`, then pair again"


class HostRefused(Denied):
    code = "nodes.host_refused"
    hint = "ask the operator: the daemon no longer accepts this device (revoked, locked, or paired again elsewhere)"


class HostInterrupted(Failed):
    code = "nodes.host_interrupted"
    hint = "the device stopped while it worked; whether the work had an effect is not known, look before asking again"


class DeviceBusy(LimitExceeded):
    code = "nodes.device_busy"
    hint = "the device works on as much as it takes at once; ask again later"


class DeviceTimedOut(LimitExceeded):
    code = "nodes.device_timed_out"
    hint = "ask for a longer timeout, or for less work"


class NotOffered(InvalidInput):
    code = "nodes.capability_not_offered"
    hint = "`palyra node show` lists what the device offers"


class BadCapabilityInput(InvalidInput):
    code = "nodes.bad_capability_input"
    hint = "`palyra node show` has the schema of what the capability takes"


class OutputTooLarge(LimitExceeded):
    code = "nodes.output_too_large"
    hint = "ask for less, or let the command write a file"


class NotAllowedHere(Denied):
    code = "nodes.declined_at_device"
    hint = "the person at the device said no, or nobody was there to say yes"


class UnsupportedHere(Unavailable):
    code = "nodes.unsupported_here"
    hint = "the device has no way to do this: set node.open_url_command or node.notify_command there"


class CapabilityFailed(Failed):
    code = "nodes.capability_failed"
    hint = "the device's own log says more"


class BadCommandPlan(InvalidInput):
    code = "nodes.bad_command"
    hint = "a command names argv, and {NAME} as a whole word of it for each parameter"


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A capability of this device, in the form that the daemon receives."""

    name: str
    description: str
    input_schema: dict[str, Any]
    # The person at the device is asked before each use.
    local_mediation: bool = False
    idempotent: bool = False


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the daemon. ``timeout_ms`` counts from its arrival."""

    request_id: str
    capability: str
    input_json: bytes
    timeout_ms: int
    max_result_bytes: int


class OutcomeKind(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended: with ``output_json`` if it succeeded, otherwise with code and message."""

    kind: OutcomeKind
    output_json: bytes = b""
    code: str = ""
    message: str = ""

    @classmethod
    def succeeded(cls, output_json: bytes) -> Self:
        return cls(kind=OutcomeKind.SUCCEEDED, output_json=output_json)

    @classmethod
    def failed(cls, code: str, message: str) -> Self:
        return cls(kind=OutcomeKind.FAILED, code=code, message=message)

    @classmethod
    def rejected(cls, code: str, message: str) -> Self:
        return cls(kind=OutcomeKind.REJECTED, code=code, message=message)


class NoteState(StrEnum):
    BEGUN = "begun"
    FINISHED = "finished"
    SETTLED = "settled"


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The durable state of a request: begun, finished with an outcome, or settled."""

    request_id: str
    capability: str
    state: NoteState
    outcome: Outcome | None = None


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's answer to the registration."""

    heartbeat_interval_ms: int
    max_result_bytes: int
    withheld: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()


class LossKind(StrEnum):
    # The daemon did not answer, or the connection broke: try again.
    UNREACHABLE = "unreachable"
    # The daemon refuses this device.
    REFUSED = "refused"


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """Wall time for certificates, monotonic time for everything else."""

    wall_ms: int
    mono_ms: int


class OpenLink(msgspec.Struct, frozen=True):
    """Connect with the present certificate, register, open the stream."""

    link: int
    open_request_ids: tuple[str, ...] = ()


class CloseLink(msgspec.Struct, frozen=True):
    link: int


class RetireLink(msgspec.Struct, frozen=True):
    """Another link has taken over: send nothing more on this one, receive the last messages, then close it."""

    link: int


class SendHeartbeat(msgspec.Struct, frozen=True):
    link: int
    running: int


class SendLeaving(msgspec.Struct, frozen=True):
    link: int
    reason: str


class SendAccepted(msgspec.Struct, frozen=True):
    request_id: str


class SendMediation(msgspec.Struct, frozen=True):
    request_id: str


class RequestRenewal(msgspec.Struct, frozen=True):
    link: int


class WriteNote(msgspec.Struct, frozen=True):
    """The note must be on disk before any later command runs."""

    note: Note


class ForgetNote(msgspec.Struct, frozen=True):
    request_id: str


class AskPerson(msgspec.Struct, frozen=True):
    dispatch: Dispatch
    timeout_ms: int


class CancelQuestion(msgspec.Struct, frozen=True):
    request_id: str


class Begin(msgspec.Struct, frozen=True):
    dispatch: Dispatch
    timeout_ms: int


class Stop(msgspec.Struct, frozen=True):
    request_id: str


class Report(msgspec.Struct, frozen=True):
    request_id: str
    outcome: Outcome


class Say(msgspec.Struct, frozen=True):
    """A line for the host's log."""

    text: str


class ShowState(msgspec.Struct, frozen=True):
    """The state that `palyra node status` shows."""

    state: str


class End(msgspec.Struct, frozen=True):
    """The host ends. ``code`` names the error, and is empty after a normal stop."""

    code: str
    message: str


Command = (
    OpenLink
    | CloseLink
    | RetireLink
    | SendHeartbeat
    | SendLeaving
    | SendAccepted
    | SendMediation
    | RequestRenewal
    | WriteNote
    | ForgetNote
    | AskPerson
    | CancelQuestion
    | Begin
    | Stop
    | Report
    | Say
    | ShowState
    | End
)


# A request's id names a file of this device.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    device_id: str
    display_name: str
    platform: str
    software_version: str
    offers: tuple[Offer, ...]
    open_request_ids: tuple[str, ...] = ()


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


Incoming = Acknowledged | Dispatched | Cancelled | AuthoritiesChanged | Dismissed


def is_request_id(text: str) -> bool:
    return _REQUEST_ID.fullmatch(text) is not None


def is_sound(dispatch: Dispatch) -> bool:
    """Return whether a dispatch is valid. An invalid one has no usable id, so it gets no answer."""
    return (
        is_request_id(dispatch.request_id)
        and 0 < len(dispatch.capability) <= MAX_CAPABILITY_NAME_CHARS
        and len(dispatch.input_json) <= MAX_INPUT_BYTES
        and dispatch.timeout_ms > 0
    )
