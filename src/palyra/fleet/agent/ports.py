"""The interfaces that a worker's agent needs: the executors of leased calls, an egress proxy, an observer."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from palyra.fleet.agent.lease import LeaseOffer
from palyra.fleet.agent.scratch import Scratch
from palyra.fleet.domain.lease import LeaseOutcome
from palyra.fleet.domain.signed_statement import SignedStatement
from palyra.sandbox.network.call_network import NetworkListener

# Gets the stream (1 standard output, 2 standard error) and its bytes while the call runs.
OutputSink = Callable[[int, bytes], None]


class CallEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a call on this machine. ``executor`` is the one that ran it."""

    outcome: LeaseOutcome
    result: Any = None
    error: dict[str, Any] | None = None
    receipt: list[dict[str, Any]] = []
    executor: str = ""


class LeasedCalls(Protocol):
    """Runs leased calls with the executors that the daemon uses. Cancelling ``perform`` leaves nothing running."""

    @property
    def capabilities(self) -> tuple[str, ...]: ...

    def require_offered(self, offer: LeaseOffer) -> None:
        """Raise for a call that this machine does not run."""

    async def perform(self, offer: LeaseOffer, scratch: Scratch, timeout_ms: int, sink: OutputSink) -> CallEnd:
        """Run the call. Return a deadline, a cancellation or a fault as its end; raise none of them."""

    def is_protected(self, names: tuple[str, ...]) -> bool: ...


class WorkerObserver(Protocol):
    """A person's terminal, and the file behind the status command."""

    def say(self, text: str) -> None: ...

    def state(self, state: str, **facts: Any) -> None: ...


class EgressOfLease(Protocol):
    """The worker's egress proxy: a process with an identity of its own.

    The daemon tells the proxy what each lease may reach. Without a proxy no program on this worker gets a network, and
    the attestation states that.
    """

    async def binding(self, worker_id: str, nonce: str) -> tuple[str, SignedStatement]:
        """Return the proxy's id and its signed binding for this challenge."""

    async def hosts(self, lease_id: str, fence: int) -> tuple[str, ...]:
        """Return the rules of the hosts that the lease may reach; empty if none."""

    def network(self, lease_id: str, fence: int) -> NetworkListener: ...
