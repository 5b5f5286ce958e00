"""The worker's end of the handover socket: a proxy that is not there, goes away, or answers nonsense."""

import asyncio
import socket
from pathlib import Path

import pytest

from palyra.fleet.egress.handover_client import HandoverClient
from palyra.fleet.egress.leases import BadHandoverMessage, LeaseRef, ProxyGone

REF = LeaseRef("l1", 3)


async def with_proxy(answers: list[bytes]) -> HandoverClient:
    """A client whose proxy answers so, each question with the next, and then is gone."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)

    async def answer() -> None:
        loop = asyncio.get_running_loop()
        with theirs:
            for each in answers:
                await loop.sock_recv(theirs, 4096)
                theirs.send(each)
            await loop.sock_recv(theirs, 4096)

    client = HandoverClient(ours)
    client.answering = asyncio.create_task(answer())  # type: ignore[attr-defined]
    return client


async def test_no_proxy_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(ProxyGone) as gone:
        await HandoverClient.connect(tmp_path / "none.sock")
    assert "palyra-egressd" in gone.value.hint


async def test_a_proxy_that_goes_away_fails_what_waits_and_what_comes() -> None:
    client = await with_proxy([])
    with pytest.raises(ProxyGone):
        await client.granted(REF)
    assert client.ended.is_set()
    with pytest.raises(ProxyGone):
        await client.close_listener(REF)
    client.close()


@pytest.mark.parametrize("answer", [b'{"id":1}', b'{"id":1,"usage":{}}'])
async def test_another_answer_than_asked_for_is_refused(answer: bytes) -> None:
    client = await with_proxy([answer])
    with pytest.raises(BadHandoverMessage):
        await client.granted(REF)
    client.close()


async def test_nonsense_ends_the_connection() -> None:
    client = await with_proxy([b"nonsense"])
    with pytest.raises(ProxyGone):
        await client.bind("w", "n")
    client.close()
    client = await with_proxy(
        [b'{"id":1,"bound":{"egress_id":"e","policy_digest_sha256":"","payload":"x","signature":""}}']
    )
    with pytest.raises(BadHandoverMessage):
        await client.bind("w", "n")
    client.close()


async def test_an_answer_to_nobody_is_dropped() -> None:
    client = await with_proxy([b'{"id":99}', b'{"id":2,"usage":{"connections":3}}'])
    first = asyncio.create_task(client.granted(REF))
    await asyncio.sleep(0)
    assert (await client.close_listener(REF)).connections == 3
    first.cancel()
    client.close()
