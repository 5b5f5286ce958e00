import asyncio

import pytest

from fakes.egress_harness import SITE, Client, echo_request_target, harness, server
from fakes.eventually import eventually
from palyra.egress.domain.refusal import HostNotAllowed, MalformedTraffic, Unreachable
from palyra.egress.proxy.http_forward import status_of


async def ask(client: Client, authority: str, path: str = "/", *, headers: str = "", host: str | None = None) -> None:
    await client.send(f"GET http://{authority}{path} HTTP/1.1\r\nHost: {host or authority}\r\n{headers}\r\n".encode())


async def answer(client: Client) -> tuple[bytes, bytes]:
    head = await client.head()
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return head, await client.exactly(length)


async def test_a_request_by_url_arrives_in_origin_form_without_what_was_for_the_proxy() -> None:
    async with server(echo_request_target) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await ask(client, f"{SITE}:{port}", "/a?b", headers="Proxy-Authorization: Basic c2VjcmV0\r\nX-Own: 1\r\n")
        head, body = await answer(client)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert body.startswith(b"GET /a?b HTTP/1.1\r\n") and b"X-Own: 1" in body and b"Proxy-" not in body
        await client.close()


async def test_requests_on_one_connection_share_the_connection_to_one_host_and_each_is_judged() -> None:
    async with server(echo_request_target) as first, server(echo_request_target) as second:
        rules = (f"{SITE}:{first}", f"{SITE}:{second}")
        async with harness(*rules) as stage:
            client = await stage.client()
            for port in (first, first, second, second, first):
                await ask(client, f"{SITE}:{port}")
                assert f"Host: {SITE}:{port}".encode() in (await answer(client))[1]
            assert [event.target.port for event in stage.recorder.connected()] == [first, second, first]
            await ask(client, "other.test")
            assert b" 403 " in await client.head()
            assert b"egress.host_not_allowed" in await client.rest()
            await client.close()
            await eventually(stage.recorder.codes)
            assert stage.recorder.codes() == ["egress.host_not_allowed"]
            assert sum(event.up for event in stage.recorder.closed()) == stage.listener.usage().bytes_up


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with server(echo_request_target) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await client.send(
            b"".join(f"GET http://{SITE}:{port}/{n} HTTP/1.1\r\nHost: {SITE}:{port}\r\n\r\n".encode() for n in range(5))
        )
        for number in range(5):
            assert (await answer(client))[1].startswith(f"GET /{number} ".encode())
        await client.close()


async def test_a_body_goes_up_while_the_answer_comes_down() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        got = await reader.readexactly(3_000_000)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" if got == b"z" * 3_000_000 else b"")
        await reader.read()

    async with server(early) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await client.send(
            f"POST http://{SITE}:{port}/ HTTP/1.1\r\nHost: {SITE}:{port}\r\nContent-Length: 3000000\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        assert b" 100 " in await client.head()
        await client.send(b"z" * 3_000_000)
        assert (await answer(client))[1] == b"ok"
        await client.close()


async def test_a_server_may_answer_before_it_has_the_body() -> None:
    async def impatient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too much\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!")
        await writer.drain()

    async with server(impatient) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await client.send(
            f"POST http://{SITE}:{port}/ HTTP/1.1\r\nHost: {SITE}:{port}\r\nContent-Length: 900000\r\n\r\nabc".encode()
        )
        head, body = await answer(client)
        assert b" 413 " in head and body == b"no!"
        assert await client.rest() == b""
        await client.close()


async def test_an_answer_until_the_end_ends_the_connection() -> None:
    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"y" * 300_000)
        await writer.drain()

    async with server(old) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await ask(client, f"{SITE}:{port}")
        assert b"connection: close" in (await client.head()).lower()
        assert await client.rest() == b"y" * 300_000
        await client.close()


async def test_a_server_that_closes_between_requests_is_dialled_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
        await writer.drain()

    async with server(once) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        for _ in range(3):
            await ask(client, f"{SITE}:{port}")
            assert (await answer(client))[1] == b"1"
            await asyncio.sleep(0.02)
        assert len(stage.recorder.connected()) == 3
        await client.close()


@pytest.mark.parametrize(
    "bad", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", b""]
)
async def test_an_unsound_answer_is_the_servers_fault_and_no_violation(bad: bytes) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bad)

    async with server(broken) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await ask(client, f"{SITE}:{port}")
        assert b" 502 " in await client.head()
        await client.close()
        await eventually(stage.recorder.codes)
        assert stage.recorder.codes() == ["egress.unreachable"]
        assert stage.listener.usage().violations == 0


async def test_an_answer_cut_short_is_not_taken_for_a_whole_one() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async with server(cut) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.client()
        await ask(client, f"{SITE}:{port}")
        assert b" 200 " in await client.head()
        assert await client.exactly(4) == b"half"
        assert await client.is_reset()
        await client.close()


async def test_a_websocket_becomes_a_tunnel_and_other_protocols_do_not() -> None:
    async def switch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"upgrade: websocket" in head:
            writer.write(b"HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x01!")
            writer.write(await reader.readexactly(3))
        else:
            writer.write(b"HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        await reader.read()

    async with server(switch) as port, harness(f"{SITE}:{port}") as stage:
        client = await stage.connect(f"{SITE}:{port}")
        await client.send(
            f"GET / HTTP/1.1\r\nHost: {SITE}:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode()
        )
        assert b" 101 " in await client.head()
        assert await client.exactly(3) == b"\x81\x01!"
        await client.send(b"abc")
        assert await client.exactly(3) == b"abc"
        await client.close()
        other = await stage.connect(f"{SITE}:{port}")
        await other.send(
            f"GET / HTTP/1.1\r\nHost: {SITE}:{port}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n".encode()
        )
        assert b" 502 " in await other.head()
        await other.close()


def test_what_the_client_is_told() -> None:
    assert status_of(HostNotAllowed("x")) == 403
    assert status_of(Unreachable("x")) == 502
    assert status_of(MalformedTraffic("x")) == 400
