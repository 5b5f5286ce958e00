"""The values of the node host: what it offers, what it is asked, what it notes, and the commands its machine gives."""

import re
from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from palyra.devicelink.limits import MAX_CAPABILITY_NAME_CHARS, MAX_INPUT_BYTES
from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, Unavailable

# What can go wrong on the device. The codes of failures also travel to the daemon and stand in its journal.


class CertificateExpired(Denied):
    code = "nodes.certificate_expired"
    hint = "the device was away for longer than its certificate lasts: `palyra node leave --forget`, then pair again"


class HostRefused(Denied):
    code = "nodes.host_refused"
    hint = "ask the operator: the daemon no longer takes this device (revoked, locked, or paired anew elsewhere)"


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
    """A capability of this device, as the daemon is told of it."""

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
    """How a request ended; ``output_json`` where it succeeded, code and message where not."""

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
    """What must outlive the process: that a request was begun, how it ended, that it is settled."""

    request_id: str
    capability: str
    state: NoteState
    outcome: Outcome | None = None


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon answered to the registration."""

    heartbeat_interval_ms: int
    max_result_bytes: int
    withheld: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()


class LossKind(StrEnum):
    # Nobody answered, or the line broke: to be tried again.
    UNREACHABLE = "unreachable"
    # The daemon said that this device is not welcome.
    REFUSED = "refused"


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """Wall time for certificates, a clock that never goes back for everything else."""

    wall_ms: int
    mono_ms: int


class OpenLink(msgspec.Struct, frozen=True):
    """Connect with the certificate in force, register, open the stream."""

    link: int
    open_request_ids: tuple[str, ...] = ()


class CloseLink(msgspec.Struct, frozen=True):
    link: int


class RetireLink(msgspec.Struct, frozen=True):
    """Another link has taken over: say nothing more on this one, hear what is still on its way, then close it."""

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
    """To be on disk before any later command is carried out."""

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
    """For the person who reads the host's log."""

    text: str


class ShowState(msgspec.Struct, frozen=True):
    """For `palyra node status`."""

    state: str


class End(msgspec.Struct, frozen=True):
    """The host cannot go on. ``code`` names the error, or is empty where it was asked to stop."""

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


# What a link tells and is told, as values: the messages of the wire, read and bounded once.

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
    """Whether a dispatch could be an honest daemon's. One that is not has no id that could be answered to."""
    return (
        is_request_id(dispatch.request_id)
        and 0 < len(dispatch.capability) <= MAX_CAPABILITY_NAME_CHARS
        and len(dispatch.input_json) <= MAX_INPUT_BYTES
        and dispatch.timeout_ms > 0
    )
