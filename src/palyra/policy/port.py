"""What the consumers of policy need of it, whichever engine is behind."""

from typing import Protocol

from palyra.policy.decision import Decision
from palyra.policy.request import PolicyRequest


class PolicyPort(Protocol):
    @property
    def bundle_digest(self) -> str:
        """The digest of the policies, schema and directory in force."""

    def decide(self, request: PolicyRequest) -> Decision:
        """Never raises: whatever goes wrong is a denial with a reason code."""
