"""A lease as it reaches the worker, read and bounded once: what no honest daemon sends is refused before a note is."""

import hashlib
import re
from typing import Any, Final

import msgspec

from palyra.errors import PalyraError
from palyra.policy.obligations import EGRESS, TIERS, Obligations
from palyra.strict_json import NotStrictJson, parse_strict
from palyra.workers.agent import limits
from palyra.workers.agent.errors import BadOffer
from palyra.workers.lease import LeaseId
from palyra.workers.limits import NONCE_HEX_CHARS
from palyra.workers.workspace_scope import ArtifactRef, WorkerWorkspaceScope, require_artifacts

_NONCE: Final = re.compile(rf"[0-9a-f]{{{NONCE_HEX_CHARS}}}")
# A tool that runs in no sandbox of its own says so by naming none.
_NO_TIER: Final = ("", "builtin")


class LeaseOffer(msgspec.Struct, frozen=True, kw_only=True):
    """``timeout_ms`` counts from its arrival: the clocks of both machines need not agree."""

    lease_id: str
    fence: int
    run_id: str
    call_id: str
    principal: str
    tool: str
    arguments: dict[str, Any]
    argument_digest: str
    tier: str = ""
    obligations: Obligations = Obligations()
    scope: WorkerWorkspaceScope
    inputs: tuple[ArtifactRef, ...] = ()
    nonce: str
    timeout_ms: int
    max_output_bytes: int


def require_sound(offer: LeaseOffer) -> None:
    """Raises for what cannot be run as it was meant."""
    try:
        LeaseId.parse(offer.lease_id)
        said = offer.scope
        scope = WorkerWorkspaceScope.parse(
            said.root, said.allowed_paths, read_only=said.read_only, folders=said.folders
        )
        require_artifacts(offer.inputs, scope, written=False)
    except PalyraError as error:
        raise BadOffer(error.message, reason=error.code) from error
    if scope != offer.scope:
        raise BadOffer("the scope is not in its one spelling")
    if not _NONCE.fullmatch(offer.nonce):
        raise BadOffer(f"the nonce of the cleanup has {NONCE_HEX_CHARS} hex digits")
    if offer.fence < 0 or offer.timeout_ms < 1 or offer.max_output_bytes < 0:
        raise BadOffer("a fencing number, a time or a size is out of range")
    if offer.tier not in (*_NO_TIER, *TIERS):
        raise BadOffer(f"{offer.tier[:16]!r} is not a tier")


def read_arguments(raw: bytes, digest: str) -> dict[str, Any]:
    """The arguments whose digest the grant names, in their canonical spelling and in no other."""
    if len(raw) > limits.MAX_ARGUMENT_BYTES:
        raise BadOffer(f"the arguments have more than {limits.MAX_ARGUMENT_BYTES} bytes")
    if hashlib.sha256(raw).hexdigest() != digest:
        raise BadOffer("the arguments are not those that the lease names by their digest")
    try:
        value = parse_strict(raw)
    except NotStrictJson as error:
        raise BadOffer(f"the arguments are no strict JSON: {error.message}") from error
    if type(value) is not dict:
        raise BadOffer("the arguments are not an object")
    return value


def read_obligations(raw: bytes) -> Obligations:
    """What the decision obliges the call to. One that this worker does not know cannot be kept, so it is refused."""
    if len(raw) > limits.MAX_OBLIGATION_BYTES:
        raise BadOffer(f"the obligations have more than {limits.MAX_OBLIGATION_BYTES} bytes")
    try:
        document = parse_strict(raw or b"{}")
    except NotStrictJson as error:
        raise BadOffer(f"the obligations are no strict JSON: {error.message}") from error
    if type(document) is not dict or (unknown := sorted(set(document) - set(Obligations.__struct_fields__))):
        named = "" if type(document) is not dict else f": {', '.join(unknown)[:100]}"
        raise BadOffer(f"the obligations are not those of this version{named}")
    try:
        obliged = msgspec.convert(document, Obligations)
    except msgspec.ValidationError as error:
        raise BadOffer(f"an obligation has no such value: {error}") from error
    numbers = (obliged.timeout_ms, obliged.max_output_bytes, obliged.memory_bytes, obliged.cpu_seconds)
    if any(number is not None and number < 1 for number in numbers):
        raise BadOffer("an obligation is a number below one")
    if obliged.tier not in (None, *TIERS) or obliged.egress not in (None, *EGRESS):
        raise BadOffer("an obligation names a tier or a kind of egress that there is not")
    return obliged
