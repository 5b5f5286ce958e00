"""Class *Identity*, the part before there is a certificate: attacks on a running bootstrap listener over real TLS."""

import asyncio
import base64
import contextlib
import json
import ssl

import msgspec
import pytest

from fakes.identity_harness import DeviceKey
from fakes.pairing_harness import FACTS, OPERATOR, Device, PairingHarness, wrong
from palyra.devicelink.agent.joining import ProvedPairing
from palyra.devicelink.limits import MAX_PAIRING_CONNECTIONS, MAX_PAIRING_CONNECTIONS_PER_ADDRESS, MAX_WRONG_GUESSES
from palyra.devicelink.pairing import messages as wire
from palyra.devicelink.pairing.code import ServerAddress, parse_code
from palyra.devicelink.pairing.proof import WrongProof, WrongServer
from palyra.errors import PalyraError, RemoteError
from palyra.identity.certificate import fingerprint_of
from palyra.identity.device import DeviceKind
from palyra.secret import Secret

pytestmark = pytest.mark.promise("P-pairing-code")


@pytest.fixture
async def harness(tmp_path):
    async with PairingHarness(tmp_path / "daemon").running() as harness:
        yield harness


def insecure():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def post(address, path, body, *, headers=b""):
    """One raw request; the status and the document."""
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=insecure())
    try:
        head = b"POST %s HTTP/1.1\r\nhost: palyra\r\ncontent-length: %d\r\nconnection: close\r\n%s\r\n"
        writer.write(head % (path.encode(), len(body), headers) + body)
        raw = await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.transport.abort()
    status, _, rest = raw.partition(b"\r\n\r\n")
    return int(status.split()[1]), json.loads(rest)


def refused(outcome):
    """The code of a refusal, whoever refused."""
    return outcome.remote_code if isinstance(outcome, RemoteError) else outcome.code


class Relay:
    """Somebody in the middle with a certificate of his own, who passes everything on in both directions."""

    def __init__(self, upstream, context, change=lambda data: data):
        self.upstream, self.context, self.change = upstream, context, change
        self.received = bytearray()

    @contextlib.asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        try:
            yield ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        finally:
            server.close()

    async def _serve(self, reader, writer):
        up_reader, up_writer = await asyncio.open_connection(self.upstream.host, self.upstream.port, ssl=insecure())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, up_writer, lambda data: data))
                group.create_task(self._copy(up_reader, writer, self.change))
        except* (OSError, ssl.SSLError):
            pass
        finally:
            up_writer.transport.abort()
            writer.transport.abort()

    async def _copy(self, source, target, change):
        while data := await source.read(65_536):
            self.received += data
            target.write(change(data))
            await target.drain()
        target.transport.abort()


@pytest.mark.parametrize("method", ["pin", "qr"])
async def test_somebody_in_the_middle_who_relays_everything_gets_nowhere(harness, tmp_path, method):
    _, code = await harness.code(method)
    async with PairingHarness(tmp_path / "mallory").running() as mallory:
        relay = Relay(harness.address, mallory.served.context())
        async with relay.running() as address:
            with pytest.raises(WrongServer):
                await Device(address).prove(code, servers=[address])
    assert await harness.pairing.pairings() == []
    assert code.secret.reveal().encode() not in bytes(relay.received)


async def test_somebody_in_the_middle_who_also_shows_his_own_authority_spends_a_guess_and_gets_nowhere(
    harness, tmp_path
):
    """With a PIN the device cannot know the authority beforehand; the proof finds out."""
    _, code = await harness.code("pin")
    theirs = base64.b64encode(harness.served.served().ca_der)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(30):
            mallory = await stack.enter_async_context(PairingHarness(tmp_path / f"mallory {number}").running())
            mine = base64.b64encode(mallory.served.served().ca_der)
            # Authorities differ by a byte or two; the head already said how long the body is.
            if len(mine) <= len(theirs):
                break

        def exchanged(data):
            return data.replace(theirs + b'"', mine + b'"' + b" " * (len(theirs) - len(mine)))

        async with Relay(harness.address, mallory.served.context(), exchanged).running() as address:
            with pytest.raises(PalyraError) as outcome:
                await Device(address).prove(code, servers=[address])
    assert refused(outcome.value) == "pairing.wrong_code"
    assert await harness.pairing.pairings() == []
    assert len(harness.events("pairing.guess_failed")) == 1


async def test_a_false_daemon_that_guesses_learns_nothing_it_could_use(harness, tmp_path):
    """Mallory runs a daemon of his own and lets the device pair with a code of the same nameplate."""
    _, code = await harness.code("pin")
    async with PairingHarness(tmp_path / "mallory").running() as mallory:
        await _renamed(mallory, code.nameplate)
        with pytest.raises(PalyraError) as outcome:
            await Device(mallory.address).prove(code)
        assert refused(outcome.value) == "pairing.wrong_code"
        assert await mallory.pairing.pairings() == []
    # The code is as good as before.
    assert await Device(harness.address).prove(code)


async def _renamed(harness, nameplate):
    new, _ = await harness.code("pin")
    record = msgspec.structs.replace(new.record, nameplate=nameplate)
    await harness.nodes.transact(lambda unit: unit.codes.put(record))


async def test_a_daemon_that_cannot_confirm_is_not_believed(harness, tmp_path):
    """Whoever answers has to prove the code too: made-up confirmations end at the device."""
    _, code = await harness.code("qr")

    def without_confirmation(data):
        start = data.find(b'"confirmation":"')
        return data if start < 0 else data[: start + 16] + b"A" * 43 + b"=" + data[start + 60 :]

    # The relay even has the daemon's own certificate and key.
    async with Relay(harness.address, harness.served.context(), without_confirmation).running() as address:
        with pytest.raises(WrongProof):
            await Device(address).prove(code, servers=[address])


async def test_ten_thousand_guesses_get_five_tries(harness):
    _, code = await harness.code("pin")
    codes = set()

    async def guess(number):
        guessed = msgspec.structs.replace(code, secret=Secret(f"{number:08d}"))
        if guessed.secret == code.secret:
            return
        try:
            await Device(harness.address).prove(guessed)
        except PalyraError as error:
            codes.add(refused(error))

    # The first fifty do everything that an honest device does, the rest as little as possible.
    for start in range(0, 50, 10):
        await asyncio.gather(*(guess(number) for number in range(start, start + 10)))
    begin = wire.encode(wire.Begin(version=1, nameplate=code.nameplate, kind=DeviceKind.NODE))
    request = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (wire.BEGIN.encode(), len(begin)) + begin
    statuses = []

    async def knock(times):
        reader, writer = await asyncio.open_connection(harness.address.host, harness.address.port, ssl=insecure())
        for _ in range(times):
            writer.write(request)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            statuses.append(int(head.split()[1]))
        writer.transport.abort()

    await asyncio.gather(*(knock(1_000) for _ in range(10)))
    assert len(statuses) == 10_000 and set(statuses) <= {403, 429}
    assert len(harness.events("pairing.guess_failed")) <= MAX_WRONG_GUESSES
    assert codes <= {"pairing.wrong_code", "pairing.code_burned", "pairing.too_many_attempts"}
    assert "pairing.too_many_attempts" in codes
    assert await harness.pairing.pairings() == []
    # Also from elsewhere, and with the right code: it is void.
    harness.service._throttle = type(harness.service._throttle)()
    with pytest.raises(RemoteError) as outcome:
        await Device(harness.address).prove(code)
    assert outcome.value.remote_code == "pairing.code_burned"
    assert len(harness.events("pairing.code_burned")) == 1


async def test_guesses_from_many_addresses_at_once_are_five_in_all(harness):
    """The bound of the code itself, with no throttle in the way: a hundred attempts begun before the first ends."""
    _, code = await harness.code("pin")
    device = Device(harness.address)
    hellos = []
    for number in range(40):
        harness.clock.forward(1)
        begin = wire.Begin(version=1, nameplate=code.nameplate, kind=DeviceKind.NODE)
        hellos.append((await harness.service.begin(begin, f"198.51.100.{number}"), f"198.51.100.{number}"))

    async def finish(hello, address):
        made_up = wire.Finish(
            session=hello.session,
            message=hello.message,
            confirmation=bytes(32),
            csr_der=device.key.csr(),
            facts=FACTS,
            leaf_hash=harness.served.served().leaf_hashes[0],
        )
        await harness.service.finish(made_up, address)

    outcomes = await asyncio.gather(*(finish(*hello) for hello in hellos), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {WrongProof}
    assert len(harness.events("pairing.guess_failed")) == MAX_WRONG_GUESSES
    assert len(harness.events("pairing.code_burned")) == 1


async def test_guesses_are_counted_across_a_restart(harness, tmp_path):
    _, code = await harness.code("pin")
    for _ in range(MAX_WRONG_GUESSES - 1):
        with pytest.raises(RemoteError):
            await Device(harness.address).prove(wrong(code))
    other = PairingHarness(tmp_path / "daemon")
    async with other.running():
        with pytest.raises(RemoteError):
            await Device(other.address).prove(wrong(code))
        with pytest.raises(RemoteError) as outcome:
            await Device(other.address).prove(code)
        assert outcome.value.remote_code == "pairing.code_burned"


async def test_a_code_works_once(harness):
    _, code = await harness.code("pin")
    first, second = Device(harness.address), Device(harness.address)
    proved = await first.prove(code)
    with pytest.raises(RemoteError) as outcome:
        await second.prove(code)
    assert outcome.value.remote_code == "pairing.code_used"
    await harness.pairing.approve(proved.pairing_id, actor=OPERATOR)
    assert (await first.ask(proved)).state == "completed"
    with pytest.raises(RemoteError) as outcome:
        await second.prove(code)
    assert outcome.value.remote_code == "pairing.code_used"
    ((_, payload), _) = harness.events("pairing.claim_refused")
    assert payload["claimant_key"] != payload["key_fingerprint"]
    assert len(harness.identity.devices()) == 1


async def test_of_two_claimants_at_once_one_gets_in_and_the_person_sees_that_there_were_two(harness):
    for _ in range(3):
        _, code = await harness.code("pin")
        devices = [Device(harness.address) for _ in range(3)]
        outcomes = await asyncio.gather(*(device.prove(code) for device in devices), return_exceptions=True)
        (winner,) = [outcome for outcome in outcomes if isinstance(outcome, ProvedPairing)]
        assert [refused(one) for one in outcomes if one is not winner] == ["pairing.code_used"] * 2
        pairing = await harness.pairing.pairing(winner.pairing_id)
        assert (pairing.refused_claims, pairing.comparison_code) == (2, winner.comparison_code)
        harness.clock.forward(60)


async def test_a_recorded_finish_sent_again_is_nothing(harness):
    _, code = await harness.code("pin")
    sent = []
    real = harness.service.finish

    async def recording(finish, address):
        sent.append(wire.encode(finish))
        return await real(finish, address)

    harness.service.finish = recording
    await Device(harness.address).prove(code)
    harness.service.finish = real
    status, document = await post(harness.address, wire.FINISH, sent[0])
    assert (status, document["error"]["code"]) == (404, "pairing.session_gone")
    assert len(await harness.pairing.pairings()) == 1


@pytest.mark.promise("P-device-recovers")
async def test_a_lost_reply_is_asked_for_again_by_the_same_key_also_of_the_next_daemon(harness, tmp_path):
    _, code = await harness.code("pin")
    device = Device(harness.address)
    lost = await device.prove(code)
    again = await device.prove(code)
    assert (again.pairing_id, again.device_id) == (lost.pairing_id, lost.device_id)
    assert again.comparison_code == (await harness.pairing.pairing(lost.pairing_id)).comparison_code
    other = PairingHarness(tmp_path / "daemon")
    async with other.running():
        device.server = other.address
        third = await device.prove(code)
        assert third.pairing_id == lost.pairing_id
        await other.pairing.approve(third.pairing_id, actor=OPERATOR)
        answers = [await device.ask(third) for _ in range(2)]
    assert answers[0].certificate_pem == answers[1].certificate_pem
    assert len(harness.events("pairing.completed")) == 1


async def test_another_device_cannot_fetch_the_answer(harness):
    _, code = await harness.code("pin")
    proved = await Device(harness.address).prove(code)
    await harness.pairing.approve(proved.pairing_id, actor=OPERATOR)
    for change in ({"collect": bytes(32)}, {"pairing_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}):
        with pytest.raises(RemoteError) as outcome:
            await Device(harness.address).ask(msgspec.structs.replace(proved, **change))
        assert outcome.value.remote_code == "pairing.unknown_request"
    assert harness.identity.devices() == []


async def test_nobody_gets_a_certificate_without_a_persons_yes(harness):
    _, code = await harness.code("pin")
    device = Device(harness.address)
    proved = await device.prove(code)
    assert (await device.ask(proved)).certificate_pem == b""
    await harness.pairing.reject(proved.pairing_id, actor=OPERATOR)
    assert (await device.ask(proved)).certificate_pem == b""
    with pytest.raises(PalyraError):
        await harness.pairing.approve(proved.pairing_id, actor=OPERATOR)
    assert harness.identity.devices() == []


async def test_the_certificate_is_for_the_key_that_proved_the_code(harness):
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    _, code = await harness.code("pin")
    device = Device(harness.address)
    proved = await device.prove(code)
    await harness.pairing.approve(proved.pairing_id, actor=OPERATOR)
    answer = await device.ask(proved)
    issued = x509.load_pem_x509_certificate(answer.certificate_pem).public_key()
    own = device.key.key.public_key()
    shape = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert issued.public_bytes(*shape) == own.public_bytes(*shape)
    assert harness.identity.identify(fingerprint_of(answer.certificate_pem)).device_id == proved.device_id


@pytest.mark.parametrize("extension", ["authority", "names"])
async def test_a_request_for_more_than_a_certificate_is_refused(harness, extension):
    from cryptography import x509

    asked = {
        "authority": x509.BasicConstraints(ca=True, path_length=None),
        "names": x509.SubjectAlternativeName([x509.DNSName("palyra")]),
    }[extension]
    _, code = await harness.code("pin")
    with pytest.raises(RemoteError) as outcome:
        await Device(harness.address).prove(code, csr_der=DeviceKey().csr(asked))
    assert outcome.value.remote_code.startswith("identity.csr")
    assert await harness.pairing.pairings() == []


async def test_giant_bodies_and_heads_are_cut_off(harness):
    status, document = await post(harness.address, wire.BEGIN, b"x" * 20_000)
    assert (status, document["error"]["code"]) == (413, "pairing.body_too_large")
    reader, writer = await asyncio.open_connection(harness.address.host, harness.address.port, ssl=insecure())
    with contextlib.suppress(OSError):
        writer.write(b"POST / HTTP/1.1\r\n")
        for number in range(2_000):
            writer.write(b"h%d: %s\r\n" % (number, b"x" * 100))
            await writer.drain()
    with contextlib.suppress(OSError):
        assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.transport.abort()
    # Announced rather than sent.
    reader, writer = await asyncio.open_connection(harness.address.host, harness.address.port, ssl=insecure())
    writer.write(b"POST /pair/v1/begin HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    with contextlib.suppress(OSError):
        for _ in range(40):
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await writer.drain()
        assert b"413" in await asyncio.wait_for(reader.readline(), 60)
    writer.transport.abort()
    _, code = await harness.code("pin")
    assert await Device(harness.address).prove(code)


@pytest.mark.promise("P-floods")
async def test_trailers_are_cut_off(harness):
    reader, writer = await asyncio.open_connection(harness.address.host, harness.address.port, ssl=insecure())
    writer.write(b"POST /pair/v1/begin HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n")
    sent = 0
    with contextlib.suppress(OSError):
        while sent < 4_000_000 and not reader.at_eof():
            writer.write(b"a: " + b"x" * 4_000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.001)
            sent += 4_000
    assert sent < 4_000_000, "the listener went on reading"
    with contextlib.suppress(OSError):
        assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.transport.abort()
    _, code = await harness.code("pin")
    assert await Device(harness.address).prove(code)


@pytest.mark.promise("P-floods")
async def test_silent_clients_take_no_more_than_their_places(harness, monkeypatch):
    monkeypatch.setattr("palyra.nodes.pairing.listener.PAIRING_REQUEST_SECONDS", 0.5)
    monkeypatch.setattr("palyra.nodes.pairing.listener.PAIRING_HANDSHAKE_SECONDS", 0.5)
    opened = []
    for _ in range(MAX_PAIRING_CONNECTIONS_PER_ADDRESS * 4):
        opened.append(await asyncio.open_connection(harness.address.host, harness.address.port))
    # Those over the bound are closed at once, those within it when they say nothing for too long.
    for reader, _ in opened:
        with contextlib.suppress(OSError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
    assert harness.listener.connections <= MAX_PAIRING_CONNECTIONS_PER_ADDRESS < MAX_PAIRING_CONNECTIONS
    for _, writer in opened:
        writer.transport.abort()
    # Half a request, and then nothing.
    slow = [await asyncio.open_connection(harness.address.host, harness.address.port, ssl=insecure()) for _ in range(4)]
    for _, writer in slow:
        writer.write(b"POST /pair/v1/begin HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
    for reader, writer in slow:
        with contextlib.suppress(OSError):
            await asyncio.wait_for(reader.read(), 60)
        writer.transport.abort()
    monkeypatch.undo()
    _, code = await harness.code("pin")
    assert await Device(harness.address).prove(code)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (wire.BEGIN, b""),
        (wire.BEGIN, b"null"),
        (wire.BEGIN, b"[" * 5_000),
        (wire.BEGIN, b'{"version":1,"nameplate":"123","kind":"node","kind":"worker"}'),
        (wire.BEGIN, b'{"version":1,"nameplate":"123","kind":"node","more":1}'),
        (wire.BEGIN, b'{"version":99,"nameplate":"123","kind":"node"}'),
        (wire.FINISH, b'{"session":"x"}'),
        (wire.WAIT, b'{"pairing_id":"x","collect":"AA==","wait_ms":99999999}'),
        (wire.WAIT, b"\xff\xfe"),
    ],
)
async def test_malformed_messages_are_refused_in_words(harness, path, body):
    status, document = await post(harness.address, path, body)
    assert (status, document["error"]["code"]) == (400, "pairing.malformed_proof")


@pytest.mark.parametrize(
    "path", ["/", "/v1/status", "/v1/pairing/codes", "/pair/v1/begin/", "/pair/v2/begin", "/metrics"]
)
async def test_nothing_but_pairing_is_here(harness, path):
    status, document = await post(harness.address, path, b"{}")
    assert (status, document["error"]["code"]) == (404, "pairing.no_such_call")


async def test_old_tls_is_not_spoken(harness):
    context = insecure()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, OSError)):
        await asyncio.open_connection(harness.address.host, harness.address.port, ssl=context)


async def test_no_code_is_in_any_file_log_or_event(harness, caplog):
    caplog.set_level("DEBUG")
    made = [await harness.code(method) for method in ("pin", "qr")]
    for new, code in made:
        assert parse_code(new.text.reveal()) == code
        await Device(harness.address).prove(code)
        secret = code.secret.reveal()
        for path in harness.state_dir.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path
        assert secret not in json.dumps(harness.events()) and secret not in caplog.text
