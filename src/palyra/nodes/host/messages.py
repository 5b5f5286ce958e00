"""The values of the node host: what it offers, what it is asked, what it notes, and the commands its machine gives."""

from enum import StrEnum
from typing import Any, Self

import msgspec


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


class StopAsking(msgspec.Struct, frozen=True):
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
    | StopAsking
    | Begin
    | Stop
    | Report
    | Say
    | ShowState
    | End
)
