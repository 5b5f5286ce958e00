"""What the consumers of policy need of it, whichever engine is behind."""

from typing import Protocol

import msgspec

from palyra.policy.decision import Decision
from palyra.policy.request import PolicyRequest


class Looks(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies of one bundle look at: attributes of a request's context, or all there is (None). Two requests
    that differ only in short plain values of others get the same answer."""

    bundle_digest: str
    attributes: frozenset[str] | None


class PolicyPort(Protocol):
    @property
    def bundle_digest(self) -> str:
        """The digest of the policies, schema and directory in force."""

    def decide(self, request: PolicyRequest) -> Decision:
        """Never raises: whatever goes wrong is a denial with a reason code."""

    def looks_at(self, request: PolicyRequest) -> Looks:
        """What was looked at to decide on this request."""
