"""What a refused caller is told, and what is written down of it."""

from typing import Any

import grpc
import pytest

from fakes.identity_harness import SetClock
from palyra.devicelink.server.gate import MAX_REMEMBERED_CERTIFICATES, PeerGate, abort_with, turn_away
from palyra.devicelink.server.peer_checks import RefusalKind
from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError, RemoteError, Unavailable
from palyra.identity.device import DeviceId, DeviceKind, DeviceRevoked
from palyra.identity.records import PeerIdentity

ME = DeviceId.new()
NODES = {DeviceKind.NODE}
Status = grpc.StatusCode


class Aborted(Exception):
    pass


class Context:
    def __init__(self, certificate: bytes | None = b"cert") -> None:
        self.certificate = certificate
        self.answer: tuple[Any, ...] = ()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self.certificate is None else {"x509_pem_cert": [self.certificate]}

    async def abort(self, *answer: Any) -> None:
        self.answer = answer
        raise Aborted


class Identities:
    refusal: PalyraError | None = None

    def identify(self, fingerprint: str) -> PeerIdentity:
        if self.refusal is not None:
            raise self.refusal
        return PeerIdentity(device_id=ME, kind=DeviceKind.NODE, fingerprint=fingerprint, generation=1, not_after_ms=9)


class Harness:
    def __init__(self) -> None:
        self.identities, self.clock = Identities(), SetClock()
        self.recorded: list[tuple[RefusalKind, int]] = []
        self.digests = 0
        self.gate = PeerGate(
            self.identities,  # type: ignore[arg-type]
            fingerprint_of=self._digest,
            is_paired=lambda device_id: device_id == ME,
            record=self._record,
            clock=self.clock,
        )

    def _digest(self, raw: bytes) -> str:
        self.digests += 1
        return raw.hex()

    async def _record(self, kind: RefusalKind, count: int) -> None:
        self.recorded.append((kind, count))


async def test_a_connections_certificate_is_read_once_and_only_so_many_are_remembered() -> None:
    harness = Harness()
    for _ in range(5):
        assert (await harness.gate.admit(Context(), NODES, ME, "m")).fingerprint == b"cert".hex()
    assert harness.digests == 1
    for number in range(MAX_REMEMBERED_CERTIFICATES + 5):
        await harness.gate.admit(Context(b"%d" % number), NODES, ME, "m")
    assert len(harness.gate._known) == MAX_REMEMBERED_CERTIFICATES


@pytest.mark.promise("P-device-known")
async def test_a_refusal_says_one_word_outside_and_everything_inside_once_a_minute() -> None:
    harness = Harness()
    harness.identities.refusal = DeviceRevoked("gone", device=ME)
    for _ in range(10):
        context = Context()
        with pytest.raises(Aborted):
            await harness.gate.admit(context, NODES, ME, "RegisterNode")
        assert context.answer == (Status.UNAUTHENTICATED, "unauthenticated")
    kind = RefusalKind("RegisterNode", "identity.revoked", ME, b"cert".hex())
    assert harness.recorded == [(kind, 1)] and harness.gate.refused == 10
    harness.clock.forward(61)
    with pytest.raises(Aborted):
        await harness.gate.admit(Context(), NODES, ME, "RegisterNode")
    assert harness.recorded[1] == (kind, 10)


async def test_without_a_certificate_nothing_else_is_looked_at() -> None:
    harness = Harness()
    context = Context(None)
    with pytest.raises(Aborted):
        await harness.gate.admit(context, NODES, ME, "m")
    assert context.answer[0] is Status.UNAUTHENTICATED and harness.recorded[0][0].code == "nodes.no_certificate"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("x"), Status.INVALID_ARGUMENT),
        (LimitExceeded("x"), Status.RESOURCE_EXHAUSTED),
        # What a client takes for a broken line is never said by us.
        (Unavailable("x"), Status.FAILED_PRECONDITION),
        (Denied("x"), Status.FAILED_PRECONDITION),
    ],
)
async def test_a_known_device_is_told_the_code(error: PalyraError, status: Any) -> None:
    context = Context()
    with pytest.raises(Aborted):
        await abort_with(context, error)
    assert context.answer == (status, f"{error.code}: x", (("palyra-code", error.code),))
    with pytest.raises(Aborted):
        await abort_with(context, error, Status.OUT_OF_RANGE)
    assert context.answer == (Status.OUT_OF_RANGE, f"{error.code}: x", (("palyra-code", error.code),))


async def test_an_error_of_the_pipeline_keeps_its_own_code_and_a_cut_stream_is_told_nothing() -> None:
    context = Context()
    with pytest.raises(Aborted):
        await abort_with(context, RemoteError("x", remote_code="call.denied"))
    assert context.answer[1] == "call.denied: x"
    with pytest.raises(Aborted):
        await turn_away(context)
    assert context.answer == (Status.PERMISSION_DENIED, "permission_denied")
