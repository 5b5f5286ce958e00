"""A fetch with a stage around it: a door that leads to scripts instead of the network, credentials, somebody who notes.

``ScriptedConnector`` judges with the real judge, so what it refuses is what a daemon refuses.
"""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from palyra.egress.client.http_client import Fetch, FetchClient
from palyra.egress.client.request import FetchAccess, FetchRequest, Prepared
from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.events import EgressEvent
from palyra.egress.domain.grant import EgressGrant, Meter
from palyra.egress.domain.header_rules import Headers
from palyra.egress.domain.injection import ResponseScan, inject, plan_injection, secret_patterns
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import CredentialMissing, NameUnresolved
from palyra.egress.domain.rules import HostRule
from palyra.egress.domain.target import Target
from palyra.egress.tls import Connection
from palyra.executors.fetch.executor import run_fetch
from palyra.executors.fetch.result import build_result
from palyra.limits import MAX_TOOL_OUTPUT_BYTES
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome
from palyra.secret import Secret

PUBLIC = "93.184.216.34"
# The pieces a server sends; None waits for ever.
Script: TypeAlias = Sequence[bytes | None]


class ScriptedConnection:
    """Plays a server's part from a list. ``sent`` is what the client said."""

    def __init__(self, script: Script, meter: Meter) -> None:
        self._left = list(script)
        self._meter = meter
        self.sent = b""
        self.closed = False

    async def read(self, most: int) -> bytes:
        await asyncio.sleep(0)
        if not self._left:
            return b""
        piece = self._left.pop(0)
        if piece is None:
            await asyncio.Event().wait()
        assert piece is not None
        piece, rest = piece[:most], piece[most:]
        if rest:
            self._left.insert(0, rest)
        self._meter.count_down(len(piece))
        if self._meter.left() < 0:
            raise self._meter.exceeded()
        return piece

    async def write(self, data: bytes) -> None:
        self._meter.spend_up(len(data))
        self.sent += data

    def close(self) -> None:
        self.closed = True


class ScriptedConnector:
    """``scripts`` by host and port, one for each connection; ``answers`` are what names resolve to, in turn."""

    def __init__(
        self, scripts: Mapping[str, Sequence[Script]], answers: Mapping[str, Sequence[Sequence[str]]] | None = None
    ) -> None:
        self._scripts = {authority: list(each) for authority, each in scripts.items()}
        self._answers = {name: list(each) for name, each in (answers or {}).items()}
        self._service = EgressProxyPolicyService(lambda: frozenset({"192.0.2.99"}))
        self.connections: list[tuple[str, ScriptedConnection]] = []
        self.resolved: list[str] = []

    async def connect(self, grant: EgressGrant, target: Target, meter: Meter) -> tuple[Connection, str]:
        self._service.judge_target(grant, target)
        answers: Sequence[str] = (target.host,) if target.is_address else self._resolve(target.host)
        pin = self._service.judge_answers(grant, target, answers)
        script = self._scripts[target.authority].pop(0)
        connection = ScriptedConnection(script, meter)
        self.connections.append((target.authority, connection))
        return connection, pin.addresses[0]

    def _resolve(self, host: str) -> Sequence[str]:
        self.resolved.append(host)
        turns = self._answers.get(host)
        if turns is None:
            return (PUBLIC,)
        if not turns:
            raise NameUnresolved(f"{host} is not known", host=host)
        return turns.pop(0) if len(turns) > 1 else turns[0]

    @property
    def requests(self) -> list[str]:
        return [connection.sent.decode("latin-1") for _, connection in self.connections]


class StageCredentials:
    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._secrets = secrets or {}
        self.asked: list[str] = []

    async def prepare(self, grant: EgressGrant, target: Target, method: str, path: str, headers: Headers) -> Prepared:
        self.asked.append(target.authority)
        plan = plan_injection(grant, target, method, path, headers)
        values: dict[str, Secret] = {}
        for one in plan.injections:
            if one.secret_ref in self._secrets:
                values[one.secret_ref] = Secret(self._secrets[one.secret_ref])
            elif one.required:
                raise CredentialMissing(f"there is no secret {one.secret_ref}", host=target.host)
        return Prepared(
            headers=inject(plan, values), redaction=ResponseScan(secret_patterns(plan, values)), secrets=tuple(values)
        )


class Noted:
    def __init__(self) -> None:
        self.events: list[EgressEvent] = []

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


class FetchHarness:
    """One grant and one client on a stage."""

    def __init__(
        self,
        scripts: Mapping[str, Sequence[Script]] | None = None,
        *,
        hosts: Sequence[str] = ("a.test", "b.test"),
        private: Sequence[str] = (),
        bindings: Sequence[CredentialBindingPlan] = (),
        secrets: Mapping[str, str] | None = None,
        answers: Mapping[str, Sequence[Sequence[str]]] | None = None,
        connector: Any = None,
        max_bytes: int = 64 * 1024 * 1024,
        ca_file: str = "",
    ) -> None:
        self.stage = ScriptedConnector(scripts or {}, answers)
        self.credentials = StageCredentials(secrets)
        self.noted = Noted()
        self.client = FetchClient(self.noted, ca_file=ca_file)
        self.grant = EgressGrant(
            grant_id="g",
            principal="agent:bot",
            run="r",
            call="c",
            tool="http.fetch",
            rules=tuple(map(HostRule.parse, hosts)),
            private_targets=tuple(map(HostRule.parse, private)),
            bindings=tuple(bindings),
            max_bytes=max_bytes,
        )
        self.access = FetchAccess(grant=self.grant, connector=connector or self.stage, credentials=self.credentials)

    @property
    def requests(self) -> list[str]:
        return self.stage.requests

    async def run(self, url: str, **arguments: Any) -> tuple[Fetch, FetchRequest]:
        request = FetchRequest.parse({"url": url, **arguments})
        fetch = self.client.fetch(self.access, request)
        await fetch.run()
        return fetch, request

    async def get(self, url: str, **arguments: Any) -> dict[str, Any]:
        fetch, request = await self.run(url, **arguments)
        assert fetch.answer is not None
        return build_result(fetch.answer, request.format, request.max_bytes, MAX_TOOL_OUTPUT_BYTES)

    async def execute(
        self, url: str, *, call_timeout_ms: int = 30_000, **arguments: Any
    ) -> tuple[ExecutorOutcome, int]:
        """Through the executor; the outcome and the bytes that were charged."""
        plan = plan_of({"url": url, **arguments}, call_timeout_ms)
        outcome = await run_fetch(self.client, self.access, FetchRequest.parse(plan.arguments), plan)
        return outcome, plan.usage.noted[BudgetKind.EGRESS_BYTES]


def plan_of(arguments: Mapping[str, Any], timeout_ms: int = 30_000) -> ExecutionPlan:
    return ExecutionPlan(
        call_id="c",
        run_id="r",
        tool="http.fetch",
        arguments=arguments,
        workspace="",
        timeout_ms=timeout_ms,
        max_output_bytes=MAX_TOOL_OUTPUT_BYTES,
        principal="agent:bot",
        channel="cli",
    )


def answer(
    body: bytes = b"",
    *,
    status: str = "200 OK",
    kind: str = "text/plain",
    headers: Sequence[str] = (),
    length: int = -1,
) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers]
    if kind:
        lines.append(f"Content-Type: {kind}")
    lines.append(f"Content-Length: {len(body) if length < 0 else length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def redirect(location: str, status: str = "302 Found") -> list[bytes]:
    return [answer(status=status, headers=(f"Location: {location}",))]


class Authority:
    """A certificate authority in files, and server contexts with its certificates."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        builder = self._builder(self._name, self._key.public_key())
        certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True).sign(
            self._key, hashes.SHA256()
        )
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def server_context(self, *hosts: str, change: Callable[[ssl.SSLContext], None] | None = None) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
        ]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        builder = self._builder(subject, key.public_key()).add_extension(x509.SubjectAlternativeName(names), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        path = self._directory / f"{hosts[0]}.pem"
        path.write_bytes(
            certificate.public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if change is not None:
            change(context)
        context.load_cert_chain(path)
        return context

    def _builder(self, subject: x509.Name, key: Any) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
            .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        )
