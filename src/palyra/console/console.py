"""The console's parts as its pages use them."""

from typing import Any, Protocol

from palyra.api.service import ApiService, ApiStore
from palyra.console.login_throttle import LoginThrottle
from palyra.tools.sqlite_approvals import count_pending

CHANNEL = "console"


class PolicyView(Protocol):
    """The policies in force, for people to look at."""

    def overview(self) -> dict[str, Any]: ...

    def policy_text(self, policy_id: str) -> dict[str, str] | None: ...


class Console:
    def __init__(self, service: ApiService, *, policy: PolicyView) -> None:
        self.service = service.through(CHANNEL)
        self.doorkeeper = service
        self.policy = policy
        self.throttle = LoginThrottle()
        self.listeners = 0

    def counts(self) -> dict[str, int]:
        """What the menu shows beside its words."""
        return {"/approvals": count_pending(self.store)}

    @property
    def store(self) -> ApiStore:
        return self.service.store
