"""What the way out needs from others: names resolved, secrets revealed, events taken."""

from typing import Protocol

from palyra.egress.events import EgressEvent
from palyra.egress.grant import EgressGrant
from palyra.egress.target import Target
from palyra.secret import Secret


class Resolver(Protocol):
    async def resolve(self, host: str) -> tuple[str, ...]:
        """Every address of a canonical name. Raises ``NameUnresolved``; judges nothing."""
        ...


class SecretSource(Protocol):
    async def reveal(self, grant: EgressGrant, secret_ref: str, target: Target) -> Secret:
        """The secret, once policy has allowed its use here and the use is recorded; raises otherwise."""
        ...


class EgressObserver(Protocol):
    def happened(self, grant: EgressGrant, event: EgressEvent) -> None:
        """Takes one event. Never blocks and never raises."""
        ...
