"""Attacks on the running proxy, over real sockets: what is refused never reaches the server, and is recorded."""

import asyncio
import contextlib
import socket

import msgspec
import pytest

from fakes.egress_harness import SITE, EgressHarness, echo, echo_request_target, harness, hello_for, server, use_ports
from fakes.eventually import eventually
from palyra.egress.domain.refusal import EgressRefused
from palyra.egress.limits import ProxyLimits

OTHER = "other.test"


class RecordingServer:
    """A server that keeps everything it was sent."""

    def __init__(self) -> None:
        self.data = b""

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.data += data


async def refusal_of(stage: EgressHarness, code: str) -> None:
    await eventually(stage.recorder.codes)
    assert stage.recorder.codes() == [code]


@pytest.mark.promise("P-net-host-held")
@pytest.mark.parametrize("face", ["connect", "socks5"])
@pytest.mark.parametrize("name", [OTHER, f"a.{SITE}", None])
async def test_a_tunnel_to_an_allowed_host_with_the_server_name_of_another(
    face: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = RecordingServer()
    async with server(received.listen) as port, harness(f"{SITE}:{port}") as stage:
        use_ports(monkeypatch, tls=port)
        client = await stage.connect(f"{SITE}:{port}") if face == "connect" else (await stage.socks(SITE, port))[0]
        await client.send(hello_for(name))
        assert await client.is_reset()
        await client.close()
        await refusal_of(stage, "egress.server_name_mismatch")
        assert stage.recorder.refusals()[0].violation
    assert received.data == b""


async def test_a_hello_in_many_pieces_is_put_together_before_it_is_judged() -> None:
    received = RecordingServer()
    async with server(received.listen) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        hello = hello_for(OTHER)
        for at in range(0, len(hello), 40):
            await client.send(hello[at : at + 40])
            await asyncio.sleep(0.001)
        assert await client.is_reset()
        await client.close()
        await refusal_of(stage, "egress.server_name_mismatch")
    assert received.data == b""


@pytest.mark.promise("P-net-host-held")
@pytest.mark.parametrize(
    "request_line",
    ["GET / HTTP/1.1", "GET http://other.test/ HTTP/1.1", "CONNECT other.test:443 HTTP/1.1", "PRI * HTTP/2.0"],
)
async def test_plain_http_for_another_host_inside_a_tunnel(request_line: str) -> None:
    received = RecordingServer()
    async with server(received.listen) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(f"{request_line}\r\nHost: {OTHER}\r\n\r\n".encode())
        assert (await client.rest()).startswith(b"HTTP/1.1 4")
        await client.close()
        await eventually(stage.recorder.codes)
        assert stage.recorder.refusals()[0].violation
    assert received.data == b""


@pytest.mark.promise("P-net-host-held")
@pytest.mark.parametrize("host", [OTHER, f"{SITE}@{OTHER}", f"{SITE}:80", f"{SITE}.", "127.0.0.1"])
async def test_a_second_request_for_another_host_on_the_same_connection(host: str) -> None:
    asked: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with server(record) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        good = f"GET / HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode()
        await client.send(good)
        await client.head()
        await client.exactly(2)
        # Pipelined behind an honest one, in one packet with it.
        await client.send(good + f"GET /secret HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        await client.head()
        assert await client.exactly(2) == b"ok"
        assert b"HTTP/1.1 4" in await client.rest()
        await client.close()
        await eventually(stage.recorder.codes)
    assert len(asked) == 2
    assert not any(b"secret" in request for request in asked)


async def test_a_request_smuggled_in_the_body_of_another() -> None:
    asked: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(65536))

    hidden = f"GET /secret HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"
    async with server(record) as port, harness(f"{SITE}:{port}") as stage:
        for framing in (
            f"Content-Length: {len(hidden)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            f"Content-Length: 0\r\nContent-Length: {len(hidden)}\r\n\r\n",
            "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        ):
            client = await stage.connect(f"{SITE}:{port}")
            await client.send(f"POST / HTTP/1.1\r\nHost: {SITE}:{port}\r\n{framing}{hidden}".encode())
            assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
            await client.close()
        assert stage.recorder.codes() == ["egress.malformed_traffic"] * 4
    assert asked == [] or asked == [b""] * len(asked)


@pytest.mark.promise("P-net-addresses")
async def test_a_name_that_changes_its_address_between_judge_and_dial() -> None:
    """The resolver is asked once: the second answer, which would be forbidden, is never seen."""
    async with server(echo) as port:
        rebinding: list[tuple[str, ...]] = [("127.0.0.1",), ("169.254.169.254",)]
        async with harness(f"{SITE}:{port}", addresses={SITE: rebinding}) as stage:
            client = await stage.connect(f"{SITE}:{port}")
            assert stage.recorder.connected()[0].address == "127.0.0.1"
            await client.close()
            again, code = await stage.socks(SITE, port)
            assert code == 2
            await again.close()
            assert stage.recorder.codes() == ["egress.address_forbidden"]


@pytest.mark.promise("P-net-addresses")
@pytest.mark.parametrize(
    "answers",
    [("127.0.0.1", "169.254.169.254"), ("93.184.216.34", "10.0.0.1"), ("::ffff:127.0.0.1",), ("64:ff9b::7f00:1",)],
)
async def test_one_forbidden_answer_refuses_them_all(answers: tuple[str, ...]) -> None:
    received = RecordingServer()
    async with (
        server(received.listen) as port,
        harness(f"{SITE}:{port}", addresses={SITE: answers}, private=()) as stage,
    ):
        client, code = await stage.socks(SITE, port)
        assert code == 2
        await client.close()
        assert stage.recorder.codes() == ["egress.address_forbidden"]
        assert stage.recorder.connected() == []


@pytest.mark.parametrize(
    "name",
    ["127.0.0.1", "::1", "127.1", "0x7f.0.0.1", "2130706433", "017700000001", "169.254.169.254", "localhost", "a\0b"],
)
async def test_a_socks_name_that_is_an_address(name: str) -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        client, code = await stage.socks(name, port)
        assert code == 2
        await client.close()
        assert stage.recorder.codes()[0] in ("egress.host_not_allowed", "egress.odd_target")
        assert stage.recorder.refusals()[0].violation


async def test_an_address_rule_does_not_open_this_machine() -> None:
    async with server(echo) as port, harness(f"127.0.0.1:{port}", private=()) as stage:
        client, code = await stage.socks("127.0.0.1", port)
        assert code == 2
        await client.close()
        assert stage.recorder.codes() == ["egress.address_forbidden"]


@pytest.mark.promise("P-limits")
async def test_the_budget_holds_over_all_tunnels_of_a_call_and_both_directions() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}", bounds={"max_bytes": 100_000}) as stage:
        first, second = await stage.connect(f"{SITE}:{port}"), await stage.connect(f"{SITE}:{port}")
        for client in (first, second):
            await client.send(b"\x00" * 20_000)
            assert await client.exactly(20_000) == b"\x00" * 20_000
        await first.send(b"\x00" * 60_000)
        got = await first.rest()
        await first.close()
        await eventually(stage.recorder.codes)
        assert stage.recorder.codes()[0] == "egress.byte_budget_spent"
        usage = stage.listener.usage()
        assert usage.bytes_up + usage.bytes_down <= 100_000
        assert len(got) <= 20_000
        # The call has nothing left: the other tunnel ends at its next byte, and new ones carry none.
        await second.send(b"\x00")
        assert await second.is_reset()
        await second.close()
        third = await stage.connect(f"{SITE}:{port}")
        await third.send(b"\x00")
        assert await third.is_reset()
        await third.close()


async def test_a_download_through_http_stops_at_the_budget_with_a_reset() -> None:
    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 1_000_000)
        await writer.drain()

    async with server(large) as port, harness(f"{SITE}:{port}", bounds={"max_bytes": 50_000}) as stage:
        client = await stage.client()
        await client.send(f"GET http://{SITE}:{port}/ HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
        await client.head()
        # After FIN a client would take what it has for the whole file.
        with pytest.raises(ConnectionResetError):
            while await client.reader.read(65536):
                pass
        await client.close()
        await refusal_of(stage, "egress.byte_budget_spent")


@pytest.mark.promise("P-floods")
async def test_slow_clients_do_not_keep_others_waiting_and_are_cut() -> None:
    limits = ProxyLimits(handshake_seconds=1.0, sweep_seconds=0.02)
    async with server(echo) as port, harness(f"{SITE}:{port}", limits=limits, bounds={"max_tunnels": 300}) as stage:
        slow = [await stage.client() for _ in range(200)]
        for client in slow:
            # On a busy machine the first ones are cut while the last ones begin.
            with contextlib.suppress(ConnectionError):
                await client.send(b"CONNECT si")
        quick = await stage.connect(f"{SITE}:{port}")
        await quick.send(b"\x00hello")
        assert await quick.exactly(6) == b"\x00hello"
        for client in slow:
            assert await client.rest() == b""
            await client.close()
        assert stage.recorder.codes() == ["egress.handshake_timeout"] * 200
        await quick.send(b"\x00still")
        assert await quick.exactly(6) == b"\x00still"
        await quick.close()


@pytest.mark.promise("P-floods")
async def test_thousands_of_idle_tunnels_do_not_stop_a_new_request() -> None:
    many = 2_000
    async with server(echo) as port, harness(f"{SITE}:{port}", bounds={"max_tunnels": many + 1}) as stage:
        idle = []
        for _ in range(many):
            sock = socket.create_connection(("127.0.0.1", stage.port))
            sock.sendall(f"CONNECT {SITE}:{port} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
            idle.append(sock)
            if len(idle) % 100 == 0:
                await eventually(lambda: stage.listener.usage().connections == len(idle))
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(b"\x00new")
        assert await client.exactly(4) == b"\x00new"
        assert stage.proxy.tunnels == many + 1
        assert stage.recorder.codes() == []
        await client.close()
        for sock in idle:
            sock.close()
        await eventually(lambda: stage.proxy.tunnels == 0)


@pytest.mark.promise("P-policy-reload")
async def test_a_change_of_policy_under_load_cuts_every_tunnel_and_no_byte_follows() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with server(flood) as port, harness(f"{SITE}:{port}", bounds={"max_bytes": 1 << 40}) as stage:
        clients = [await stage.connect(f"{SITE}:{port}") for _ in range(20)]
        readers = [asyncio.create_task(client.rest()) for client in clients]
        await eventually(lambda: stage.listener.usage().bytes_down > 20_000_000)
        assert stage.proxy.reconsider(lambda grant: msgspec.structs.replace(grant, rules=())) == 20
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        moved = stage.listener.usage().bytes_down
        await asyncio.gather(*readers)
        assert stage.listener.usage().bytes_down == moved
        assert stage.recorder.codes() == ["egress.policy_changed"] * 20
        for client in clients:
            await client.close()


async def test_a_target_lost_while_it_is_being_resolved_is_not_dialled() -> None:
    started, go = asyncio.Event(), asyncio.Event()
    received = RecordingServer()
    async with server(received.listen) as port, harness(f"{SITE}:{port}") as stage:

        async def slow(host: str) -> tuple[str, ...]:
            started.set()
            await go.wait()
            return ("127.0.0.1",)

        stage.resolver.resolve = slow  # type: ignore[method-assign]
        client = await stage.client()
        await client.send(f"CONNECT {SITE}:{port} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode())
        await started.wait()
        stage.proxy.reconsider(lambda _grant: None)
        go.set()
        assert await client.rest() == b""
        await client.close()
        assert stage.recorder.connected() == []
        assert stage.recorder.codes() == ["egress.policy_changed"]


async def test_a_client_that_is_gone_leaves_nothing_behind() -> None:
    async with server(echo) as port, harness(f"{SITE}:{port}") as stage:
        whole = f"CONNECT {SITE}:{port} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode()
        for stay in (b"", b"\x05", b"CONNECT", whole):
            sock = socket.create_connection(("127.0.0.1", stage.port))
            sock.sendall(stay)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            sock.close()
        client = await stage.connect(f"{SITE}:{port}")
        await client.close()
        await eventually(lambda: stage.proxy.tunnels == 0)


async def test_an_upstream_server_that_dies_in_the_middle() -> None:
    async with harness(f"{SITE}:1", bounds={"max_bytes": 1 << 40}) as stage:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            stage.proxy.reconsider(
                lambda grant: msgspec.structs.replace(
                    grant,
                    rules=(msgspec.structs.replace(grant.rules[0], port=port),),
                    private_targets=(msgspec.structs.replace(grant.rules[0], port=port),),
                )
            )
            client = await stage.connect(f"{SITE}:{port}")
            accepted, _ = await asyncio.to_thread(listening.accept)
            accepted.sendall(b"half")
            assert await client.exactly(4) == b"half"
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            accepted.close()
            assert await client.is_reset()
            await client.close()
        refused, code = await stage.socks(SITE, port)
        assert code == 4
        await refused.close()
        assert stage.recorder.codes() == ["egress.unreachable"]


async def test_a_half_closed_connection_still_gets_its_answer() -> None:
    async def after_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = await reader.read()
        writer.write(b"got %d" % len(got))
        await writer.drain()

    async with server(after_the_end) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(b"\x00" * 100_000)
        client.end()
        assert await client.rest() == b"got 100000"
        await client.close()


async def test_every_refusal_of_a_face_is_a_leaf_with_a_code() -> None:
    async with server(echo_request_target) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await client.send(b"TRACE http://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n")
        assert b" 405 " in await client.head()
        await client.close()
        await eventually(stage.recorder.codes)
        assert all(issubclass(EgressRefused.registry[code], EgressRefused) for code in stage.recorder.codes())
