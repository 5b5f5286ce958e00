"""The pipeline's leave to run one call on a worker: for one run, one tool, one argument digest, once."""

from typing import Any

import msgspec

from palyra.errors import Denied, InvalidInput
from palyra.ids import Ulid


class GrantId(Ulid):
    __slots__ = ()
    noun = "grant id"


class GrantUnknown(Denied):
    code = "worker_grant.unknown"
    hint = "a lease needs a grant that the pipeline issued for this call"


class GrantUsed(Denied):
    code = "worker_grant.used"
    hint = "a grant lets one lease begin; a retry gets a grant of its own"


class GrantExpired(Denied):
    code = "worker_grant.expired"
    hint = "make the call again"


class GrantForAnother(Denied):
    code = "worker_grant.other_call"
    hint = "a grant is bound to its run, call, tool and arguments: anything changed is another call"


class GrantRepeated(InvalidInput):
    code = "worker_grant.repeated"
    hint = "issue each grant under an id of its own"
    http_status = 409


class WorkerApprovalGrant(msgspec.Struct, frozen=True, kw_only=True):
    """``approval_id`` is the person's yes behind it, where policy asked for one. ``used_by`` is the lease it became."""

    grant_id: str
    run_id: str
    call_id: str
    principal: str
    tool: str
    argument_digest: str
    issued_ms: int
    expires_ms: int
    approval_id: str = ""
    attempt: int = 1
    used_by: str = ""

    def require(self, *, now_ms: int, **call: Any) -> None:
        """Raises unless it lets exactly this call begin now."""
        if self.used_by:
            raise GrantUsed(f"the grant was used by the lease {self.used_by}", grant_id=self.grant_id)
        differing = sorted(name for name, value in call.items() if getattr(self, name) != value)
        if differing:
            raise GrantForAnother(f"the grant is for another {', '.join(differing)}", grant_id=self.grant_id)
        if now_ms >= self.expires_ms:
            raise GrantExpired("the grant is not valid any more", grant_id=self.grant_id)
