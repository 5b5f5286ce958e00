"""The daemon's orders as values: the messages of the wire, read and bounded once."""

import msgspec

from palyra.egress.rules import parse_rules
from palyra.errors import PalyraError
from palyra.ids import InvalidId
from palyra.workers.egress import limits
from palyra.workers.egress.lease_book import LeaseRef
from palyra.workers.egress.lease_grant import LeaseGrant
from palyra.workers.lease import LeaseId


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """``still_open`` counts only where this is the whole list."""

    whole: bool = False
    still_open: tuple[LeaseRef, ...] = ()
    granted: tuple[LeaseGrant, ...] = ()
    ended: tuple[LeaseRef, ...] = ()
    ca_bundle_pem: str = ""


def is_sound(grant: LeaseGrant) -> bool:
    """Whether a grant could be an honest daemon's: what is not is dropped, and opens nothing."""
    texts = (grant.worker_id, grant.run_id, grant.call_id, grant.principal, grant.tool)
    if any(len(text) > limits.MAX_FIELD_CHARS for text in texts) or len(grant.hosts) > limits.MAX_HOSTS_OF_A_LEASE:
        return False
    try:
        LeaseId.parse(grant.lease_id)
        parse_rules(grant.hosts)
    except (InvalidId, PalyraError):
        return False
    return grant.timeout_ms > 0
