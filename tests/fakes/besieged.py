"""A running daemon process and everything an attacker on its network may have: devices that were paired by hand, and
certificates that its own authority would never have made."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import grpc

from fakes.daemon import Daemon, Place
from fakes.identity_harness import DeviceKey
from fakes.node_server_harness import ByHand
from palyra.client.client import AsyncClient
from palyra.config.state_dir import StateDir
from palyra.daemon.gateway_wiring import Gateway
from palyra.daemon.settings import Settings
from palyra.devicelink.agent import joining
from palyra.devicelink.agent.joining import DaemonNotReached, prove, wait_for_decision
from palyra.devicelink.pairing.code import DeviceFacts, PairingCode, ServerAddress, parse_code
from palyra.errors import PalyraError, RemoteError
from palyra.identity.certificate import CertificateProfile, Purpose, pem_of
from palyra.identity.device import DeviceId, DeviceKind, SpiffeId
from palyra.identity.records import IssuedCertificate
from palyra.identity.x509 import CertificateSigner, create_authority, read_requested_key

DAY_MS = 86_400_000
FACTS = DeviceFacts(name="a laptop", platform="linux", software_version="1")


class Forger:
    """Signs with the daemon's own authority: for what only a broken or another daemon could have made."""

    def __init__(self, place: Place) -> None:
        settings = Settings()
        gateway = Gateway(settings_with_key(settings, place), StateDir.open(place.state), place.policies, channel="cli")
        try:
            asyncio.run(gateway.identity.open())
            (authority,) = gateway.identity._authorities.in_force()
            self.signer = authority.signer
            self.trust_domain = gateway.identity.trust_domain
            self.bundle = gateway.identity.ca_bundle_pem()
        finally:
            gateway.close()

    def leaf(self, key: DeviceKey, device_id: str, *, signer: CertificateSigner | None = None, **changes: Any) -> bytes:
        now = time.time_ns() // 1_000_000
        name = SpiffeId(self.trust_domain, changes.pop("kind", DeviceKind.NODE), DeviceId(device_id))
        fields = {
            "purpose": Purpose.DEVICE,
            "common_name": device_id,
            "uri": str(name),
            "not_before_ms": now - 60_000,
            "not_after_ms": now + DAY_MS,
        }
        profile = CertificateProfile(**{**fields, **changes})
        return pem_of((signer or self.signer).sign(profile, read_requested_key(key.csr())))

    def other_authority(self) -> CertificateSigner:
        """One with the same name and another key."""
        now = time.time_ns() // 1_000_000
        return CertificateSigner(
            *create_authority(
                CertificateProfile(
                    purpose=Purpose.AUTHORITY,
                    common_name="Palyra authority",
                    not_before_ms=now - 60_000,
                    not_after_ms=now + DAY_MS,
                    path_length=0,
                )
            )
        )


def settings_with_key(settings: Settings, place: Place) -> Settings:
    """The key file beside the settings file, as the command line has it."""
    import msgspec

    vault = msgspec.structs.replace(settings.vault, key_file=str(place.config.parent / "vault.key"))
    return msgspec.structs.replace(settings, vault=vault)


class Besieged:
    """``harness`` parts of devices by hand: the port and the authorities."""

    def __init__(self, place: Place, daemon: Daemon, forger: Forger) -> None:
        self.place = place
        self.daemon = daemon
        self.forger = forger
        self.port = 0
        self.identities = SimpleNamespace(ca_bundle_pem=lambda: forger.bundle)

    def client(self) -> AsyncClient:
        return AsyncClient(base_url=self.daemon.url, token=self.daemon.token)

    async def code(self, **options: Any) -> tuple[PairingCode, ServerAddress]:
        async with self.client() as client:
            made = await client.create_pairing_code("pin", options.pop("kind", "node"), **options)
        return parse_code(made.code.reveal()), ServerAddress.parse(made.view.addresses[0])

    async def pair(self, kind: DeviceKind = DeviceKind.NODE, name: str = "a laptop") -> ByHand:
        code, server = await self.code(kind=kind.value)
        key = DeviceKey()
        facts = DeviceFacts(name=name, platform="linux", software_version="1")
        proved = await self._patiently(lambda: prove(code, kind=kind, csr_der=key.csr(), facts=facts, servers=[server]))
        async with self.client() as client:
            await client.approve_pairing(proved.pairing_id, comparison_code=proved.comparison_code)
        answer = await wait_for_decision(proved, wait_ms=30_000)
        assert answer.state == "completed"
        self.port = answer.node_port
        issued = IssuedCertificate(
            device_id=DeviceId(proved.device_id),
            kind=kind,
            certificate_pem=answer.certificate_pem,
            ca_bundle_pem=answer.ca_bundle_pem,
            generation=answer.generation,
            fingerprint="",
            not_before_ms=0,
            not_after_ms=0,
        )
        return ByHand(self, key, issued)  # type: ignore[arg-type]

    async def _patiently(self, work: Any) -> Any:
        """One address pairs so many devices a minute, and all of ours are one address."""
        for _ in range(20):
            try:
                return await work()
            except RemoteError as error:
                if error.remote_code != "pairing.too_many_attempts":
                    raise
                await asyncio.sleep(1)
        raise AssertionError("no attempt was let in")

    def refused(self) -> list[dict[str, Any]]:
        """The refusals on record."""
        events = self.place.palyra("journal", "tail", "--json", "-n", "1000", "--kind", "node.peer_refused").data[
            "events"
        ]
        return [event["payload"] for event in events]

    def is_refused(self, code: str, method: str = "") -> bool:
        return any(one["code"] == code and method in ("", one["method"]) for one in self.refused())


async def status_of(call: Any) -> tuple[Any, str]:
    """How a call ended: its status and its words."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


@contextlib.asynccontextmanager
async def guesser(server: ServerAddress, csr_der: bytes) -> AsyncIterator[Callable[[PairingCode], Awaitable[str]]]:
    """Tries codes on a connection that is kept as long as the daemon keeps it. Says how each try ended."""
    opened = joining._connected
    kept: list[Any] = []
    async with contextlib.AsyncExitStack() as connections:

        @contextlib.asynccontextmanager
        async def connected(address: ServerAddress, context: Any) -> AsyncIterator[Any]:
            if not kept:
                kept.append(await connections.enter_async_context(opened(address, context)))
            yield kept[0]

        async def try_one(code: PairingCode) -> str:
            for _ in range(3):
                try:
                    await prove(code, kind=DeviceKind.NODE, csr_der=csr_der, facts=FACTS, servers=[server])
                except RemoteError as error:
                    return error.remote_code
                except DaemonNotReached:
                    # The daemon closed it: another.
                    kept.clear()
                    continue
                except PalyraError as error:
                    return error.code
                return "got in"
            raise AssertionError("the daemon does not answer")

        with patch.object(joining, "_connected", connected):
            yield try_one


def besieged_place(folder: Path) -> Place:
    return Place(
        folder,
        "[nodes]\nheartbeat_seconds = 5.0\nheartbeat_timeout_seconds = 60.0\nmax_result_bytes = 4096\n"
        '[tools]\npreapproved = ["node.invoke"]\n',
    )
