"""What a listener shows, checked by the TLS libraries that devices use."""

import ssl
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from fakes.identity_harness import ACTOR, DAY_SECONDS, DeviceKey, IdentityHarness
from palyra.identity.device import BadServerName, DeviceId, DeviceKind, NotOpened
from palyra.identity.identity_manager import IdentityManager
from palyra.identity.records import IssuedCertificate


async def test_it_is_renewed_when_due_and_not_before(harness: IdentityHarness) -> None:
    manager = harness.manager()
    with pytest.raises(NotOpened):
        manager.server_certificate()
    await manager.open()
    first = manager.server_certificate()
    assert manager.server_certificate() is first
    harness.clock.forward(DAY_SECONDS * 2 / 3 - 1)
    assert manager.server_certificate() is first
    harness.clock.forward(2)
    second = manager.server_certificate()
    assert second.fingerprint != first.fingerprint and second.key_pem != first.key_pem
    assert second.not_after_ms > first.not_after_ms


async def test_many_threads_get_the_same_one(harness: IdentityHarness) -> None:
    manager = harness.manager()
    await manager.open()
    with ThreadPoolExecutor(8) as pool:
        shown = list(pool.map(lambda _: manager.server_certificate().fingerprint, range(64)))
    assert len(set(shown)) == 1


async def test_its_key_is_nowhere_on_disk(harness: IdentityHarness) -> None:
    manager = harness.manager()
    await manager.open()
    body = manager.server_certificate().key_pem.reveal().splitlines()[1].encode()
    for file in (*harness.state.iterdir(), *harness.config.iterdir()):
        assert body not in file.read_bytes(), file.name


async def test_new_names_need_a_new_certificate(today: IdentityHarness) -> None:
    manager = today.manager(server_names=("10.0.0.7",))
    await manager.open()
    first = manager.server_certificate()
    manager.name_server(["box.lan", "127.0.0.1"])
    second = manager.server_certificate()
    assert second.fingerprint != first.fingerprint
    for name in ("palyra", "box.lan", "127.0.0.1"):
        handshake(manager, manager.ca_bundle_pem(), server_name=name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(manager, manager.ca_bundle_pem(), server_name="10.0.0.7")
    with pytest.raises(BadServerName):
        manager.name_server(["box.lan:7143"])
    with pytest.raises(BadServerName):
        today.manager(server_names=("a b",))


@pytest.mark.promise("P-device-recovers")
async def test_a_device_that_knows_only_the_old_authority_is_led_to_the_new_one(today: IdentityHarness) -> None:
    """The rotation as a device lives it, with OpenSSL on both sides."""
    manager = today.manager()
    key = DeviceKey()
    old = await manager.issue(DeviceKind.NODE, DeviceId.new(), key.csr(), actor=ACTOR)
    handshake(manager, old.ca_bundle_pem, client=(key, old))
    await manager.rotate_authority(actor=ACTOR)
    # It knows the old authority only, and its certificate is by the old one.
    handshake(manager, old.ca_bundle_pem, client=(key, old))
    peer = manager.identify(old.fingerprint)
    await manager.used(peer)
    new = await manager.renew(peer, key.csr(), 1)
    assert old.ca_bundle_pem in new.ca_bundle_pem and new.ca_bundle_pem.count(b"BEGIN") == 2
    handshake(manager, new.ca_bundle_pem, client=(key, new))
    # Another one that was paired meanwhile.
    late_key = DeviceKey()
    late = await manager.issue(DeviceKind.NODE, DeviceId.new(), late_key.csr(), actor=ACTOR)
    handshake(manager, late.ca_bundle_pem, client=(late_key, late))
    # The old one is over as soon as nobody needs it.
    await manager.used(manager.identify(new.fingerprint))
    await manager.tend(actor="palyrad")
    assert manager.ca_bundle_pem().count(b"BEGIN") == 1
    assert manager.server_certificate().chain_pem.count(b"BEGIN") == 1
    handshake(manager, new.ca_bundle_pem, client=(key, new))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(manager, old.ca_bundle_pem, client=(key, new))
    with pytest.raises(ssl.SSLError):
        handshake(manager, new.ca_bundle_pem, client=(key, old))


@pytest.mark.promise("P-device-recovers")
async def test_grpc_follows_the_rotation_too(today: IdentityHarness) -> None:
    """BoringSSL looks for paths in a way of its own; the listener asks for its certificate at every handshake."""
    manager = today.manager()
    key = DeviceKey()
    old = await manager.issue(DeviceKind.NODE, DeviceId.new(), key.csr(), actor=ACTOR)

    def configuration() -> grpc.ServerCertificateConfiguration:
        shown = manager.server_certificate()
        pair = (shown.key_pem.reveal().encode(), shown.chain_pem)
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=manager.ca_bundle_pem())

    class Echo(grpc.GenericRpcHandler):
        def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)

    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    credentials = grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, require_client_authentication=True
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()

    def echo(issued: IssuedCertificate) -> bytes:
        channel_credentials = grpc.ssl_channel_credentials(issued.ca_bundle_pem, key.pem(), issued.certificate_pem)
        options = (("grpc.ssl_target_name_override", "palyra"), ("grpc.use_local_subchannel_pool", 1))
        with grpc.secure_channel(f"127.0.0.1:{port}", channel_credentials, options) as channel:
            answered: bytes = channel.unary_unary("/x/echo")(b"hello", timeout=30)
            return answered

    try:
        assert echo(old) == b"hello"
        await manager.rotate_authority(actor=ACTOR)
        assert echo(old) == b"hello"
        peer = manager.identify(old.fingerprint)
        new = await manager.renew(peer, key.csr(), 1)
        assert echo(new) == b"hello"
        await manager.used(manager.identify(new.fingerprint))
        await manager.tend(actor="palyrad")
        assert echo(new) == b"hello"
        with pytest.raises(grpc.RpcError) as refused:
            echo(old)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        server.stop(None).wait()


def handshake(
    manager: IdentityManager,
    trusted: bytes,
    *,
    server_name: str = "palyra",
    client: tuple[DeviceKey, IssuedCertificate] | None = None,
) -> None:
    """A whole TLS handshake in memory, mutual if the client has a certificate. Raises what either side raises."""
    shown = manager.server_certificate()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(server_context, shown.chain_pem + shown.key_pem.reveal().encode())
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.load_verify_locations(cadata=trusted.decode())
    if client is not None:
        server_context.verify_mode = ssl.CERT_REQUIRED
        server_context.load_verify_locations(cadata=manager.ca_bundle_pem().decode())
        _load(client_context, client[1].certificate_pem + client[0].pem())
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_context.wrap_bio(down, up, server_hostname=server_name),
        server_context.wrap_bio(up, down, server_side=True),
    ]
    done: set[int] = set()
    for _ in range(20):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass
    # The server may refuse only after the client is done: one byte each way shows that both are.
    for one, other in (ends, ends[::-1]):
        one.write(b"x")
        assert other.read(1) == b"x"
    assert done == {0, 1}


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.pem"
        path.write_bytes(pem)
        context.load_cert_chain(path)
