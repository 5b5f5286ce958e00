"""Pairing as the daemon has it: the desk for people, the door for devices, and the listener between, joined here.

The listener opens with the first code, or at once if a code or a request from before is still open. Without a daemon
(one command line) there is nobody to listen: codes are not made then, but requests can be decided.
"""

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from palyra.clock import Clock
from palyra.config.settings import NodeSettings
from palyra.errors import PalyraError
from palyra.nodes.pairing_code import ServerAddress
from palyra.nodes.pairing_desk import Doorstep, PairingDesk
from palyra.nodes.pairing_door import Bell
from palyra.nodes.pairing_errors import NotListening
from palyra.nodes.state_port import NodeState
from palyra.secret import Secret

if TYPE_CHECKING:
    from palyra.identity.identity_manager import IdentityManager
    from palyra.nodes.bootstrap_server import ServedIdentity

log = logging.getLogger("palyra.nodes")

# Addresses to listen on that nobody can go to.
_EVERYWHERE = frozenset(("0.0.0.0", "::"))  # noqa: S104


class PairingParts:
    """``bind`` gives a listening socket; it is called once, when the listener opens."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        state: NodeState,
        identity: "Callable[[], IdentityManager]",
        clock: Clock,
        learn: Callable[[Secret], None],
        bind: Callable[[], socket.socket],
        node_port: Callable[[], int],
        refused: Callable[[str, str], None] = lambda code, address: None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._identity = identity
        self._clock = clock
        self._bind = bind
        self._node_port = node_port
        self._refused = refused
        self._bell = Bell()
        self._wanted = asyncio.Event()
        self._doorstep: asyncio.Future[Callable[[], Doorstep]] | None = None
        self.desk = PairingDesk(
            state=state,
            doorkeeper=self,
            random=os.urandom,
            bell=self._bell,
            learn=learn,
            ttl_seconds=settings.code_seconds,
        )

    async def open(self) -> Doorstep:
        if self._doorstep is None or self._doorstep.cancelled():
            raise NotListening("no daemon listens for devices here")
        self._wanted.set()
        describe = await asyncio.shield(self._doorstep)
        return describe()

    def is_needed(self) -> bool:
        """Whether a device may come with a code, or for an answer, that was made in an earlier life."""
        return self._state.read(
            lambda unit: (
                any(code.in_force(unit.now_ms) for code in unit.codes.list())
                or any(pairing.open() and unit.now_ms < pairing.expires_ms for pairing in unit.pairings.list())
            )
        )

    async def run(self) -> None:
        """Listens once that is wanted; where it cannot, whoever wanted it is told why. Ends only by being cancelled."""
        if not self._settings.enabled:
            return
        if self.is_needed():
            self._wanted.set()
        while True:
            self._doorstep = doorstep = asyncio.get_running_loop().create_future()
            try:
                await self._wanted.wait()
                await self._serve(doorstep)
            except (PalyraError, OSError) as error:
                self._wanted.clear()
                self._doorstep = None
                log.warning("devices cannot be paired: %s", error)
                if not doorstep.done():
                    doorstep.set_exception(_as_refusal(error))
                    # Known as seen: at a start nobody waits for it.
                    doorstep.exception()
            finally:
                doorstep.cancel()

    async def _serve(self, doorstep: "asyncio.Future[Callable[[], Doorstep]]") -> None:
        from palyra.nodes.bootstrap_app import create_bootstrap_app
        from palyra.nodes.bootstrap_server import BootstrapListener, ServedIdentity
        from palyra.nodes.pairing_door import PairingDoor

        await self._identity().open()
        served = ServedIdentity(self._identity())
        door = PairingDoor(
            state=self._state,
            issuer=self._identity(),
            read_key=key_fingerprint,
            served=served.served,
            node_port=self._node_port,
            clock=self._clock,
            bell=self._bell,
            refused=self._refused,
        )
        with self._bind() as listener:
            bound = listener.getsockname()
            # Asked for every code: the authority may have been replaced since.
            doorstep.set_result(lambda: self._describe(served, bound))
            await BootstrapListener(listener, create_bootstrap_app(door), served).serve()

    def _describe(self, served: "ServedIdentity", bound: tuple[str, int]) -> Doorstep:
        names = self._settings.advertise or (socket.gethostname() if bound[0] in _EVERYWHERE else bound[0],)
        addresses = (f"[{name}]:{bound[1]}" if ":" in name else f"{name}:{bound[1]}" for name in names)
        return Doorstep(tuple(ServerAddress.parse(address) for address in addresses), served.served().ca_hash)


def _as_refusal(error: PalyraError | OSError) -> PalyraError:
    if isinstance(error, PalyraError):
        return error
    return NotListening(f"the daemon cannot listen for devices: {error.strerror}")


def key_fingerprint(csr_der: bytes) -> str:
    """SHA-256 of the public key that a CSR is for; refuses one that asks for more than a certificate."""
    from palyra.identity.x509 import accepted_key

    return hashlib.sha256(accepted_key(csr_der)).hexdigest()
