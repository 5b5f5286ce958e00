"""The client against scripted servers behind the real judge."""

import gzip
from typing import Any

import pytest

from fakes.fetch_harness import PUBLIC, FetchHarness, answer, redirect
from palyra.egress.client.http_client import ConnectionBroken
from palyra.egress.client.request import RedirectRefused, TooManyRedirects
from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.events import Closed, Connected, ResponseRedacted
from palyra.egress.domain.refusal import HostNotAllowed, MalformedTraffic
from palyra.egress.protocols.http_content import UnknownEncoding

TOKEN = "tok-1234567890"
BINDING = CredentialBindingPlan(
    header_name="Authorization", secret_ref="global/t", prefix="Bearer ", hosts=("a.test:80", "a.test:443")
)


async def test_a_plain_get() -> None:
    harness = FetchHarness({"a.test:80": [[answer(b"hello")]]})
    result = await harness.get("http://a.test/x?y")
    assert result["text"] == "hello" and result["status"] == 200 and not result["truncated"]
    assert harness.requests[0].startswith("GET /x?y HTTP/1.1\r\nHost: a.test\r\n")
    assert harness.stage.connections[0][1].closed
    connected, closed = harness.noted.events
    assert isinstance(connected, Connected) and connected.address == PUBLIC and connected.face == "fetch"
    assert isinstance(closed, Closed) and closed.reason == "done" and closed.up and closed.down


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\nuntil", b" close"], "until close"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2", b"\r\nde\r\n0\r\n\r\n"], "abcde"),
        ([bytes([byte]) for byte in answer(b"slow")], "slow"),
        ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + answer(b"real")], "real"),
        ([answer(gzip.compress(b"packed"), headers=("Content-Encoding: gzip",))], "packed"),
        ([answer(b"first") + answer(b"second")], "first"),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"], "ok"),
        ([answer(b"", status="204 No Content", kind="").replace(b"Content-Length: 0\r\n", b"")], ""),
    ],
)
async def test_framings(pieces: list[bytes | None], text: str) -> None:
    result = await FetchHarness({"a.test:80": [pieces]}).get("http://a.test/")
    assert result["text"] == text and not result["truncated"]


async def test_head_has_no_body_whatever_it_announces() -> None:
    harness = FetchHarness({"a.test:80": [[answer(length=1000, headers=("Content-Encoding: br",)), None]]})
    result = await harness.get("http://a.test/", method="HEAD")
    assert result["headers"]["content-length"] == "1000" and result["bytes"] == 0 and not result["truncated"]


async def test_reading_stops_at_the_limit() -> None:
    endless: list[bytes | None] = [b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 65536] * 100, None]
    harness = FetchHarness({"a.test:80": [endless]})
    result = await harness.get("http://a.test/", max_bytes=1000)
    assert result["text"] == "x" * 1000 and result["truncated"] and result["bytes"] == 1000
    assert harness.stage.connections[0][1].closed


async def test_redirects_are_followed_with_a_connection_each() -> None:
    harness = FetchHarness(
        {"a.test:80": [redirect("/2"), redirect("http://b.test/3")], "b.test:80": [[answer(b"end")]]}
    )
    result = await harness.get("http://a.test/1", headers={"X-Key": "k", "Accept": "a/b"})
    assert result["text"] == "end" and result["final_url"] == "http://b.test/3" and result["origin"] == "http://b.test"
    assert [each["to"] for each in result["redirects"]] == ["http://a.test/2", "http://b.test/3"]
    assert (
        "X-Key: k" in harness.requests[1]
        and "X-Key" not in harness.requests[2]
        and "Accept: a/b" in harness.requests[2]
    )


@pytest.mark.parametrize("mode", ["manual", "refuse"])
async def test_redirects_that_the_caller_does_not_want(mode: str) -> None:
    harness = FetchHarness({"a.test:80": [redirect("http://c.test/")]})
    if mode == "manual":
        result = await harness.get("http://a.test/", redirect=mode)
        assert result["status"] == 302 and result["headers"]["location"] == "http://c.test/"
    else:
        with pytest.raises(RedirectRefused):
            await harness.get("http://a.test/", redirect=mode)


async def test_every_hop_is_judged() -> None:
    harness = FetchHarness({"a.test:80": [redirect("http://c.test/")]})
    with pytest.raises(HostNotAllowed):
        await harness.get("http://a.test/")
    assert len(harness.requests) == 1


async def test_chains_end() -> None:
    harness = FetchHarness({"a.test:80": [redirect(f"/{number}") for number in range(10)]})
    with pytest.raises(TooManyRedirects) as refusal:
        await harness.get("http://a.test/")
    assert len(harness.requests) == 6 and len(refusal.value.details["redirects"]) == 5


async def test_a_redirect_without_a_place_is_an_answer() -> None:
    harness = FetchHarness({"a.test:80": [[answer(b"moved", status="301 Moved")]]})
    assert (await harness.get("http://a.test/"))["text"] == "moved"


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([], ConnectionBroken),
        ([b"HTTP/1.1 200"], ConnectionBroken),
        ([b"not http\r\n\r\n"], MalformedTraffic),
        ([b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"], MalformedTraffic),
        ([b"HTTP/1.1 103 Early\r\n\r\n" * 9 + answer()], MalformedTraffic),
        ([answer(b"abc", length=10)], MalformedTraffic),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], MalformedTraffic),
    ],
)
async def test_servers_that_misbehave(pieces: list[bytes | None], error: type[Exception]) -> None:
    harness = FetchHarness({"a.test:80": [pieces]})
    with pytest.raises(error):
        await harness.get("http://a.test/")
    assert harness.stage.connections[0][1].closed and isinstance(harness.noted.events[-1], Closed)


async def test_encodings_nobody_asked_for() -> None:
    script = [[answer(b"xyz", headers=("Content-Encoding: br",))]]
    with pytest.raises(UnknownEncoding):
        await FetchHarness({"a.test:80": script}).get("http://a.test/", format="text")
    assert (await FetchHarness({"a.test:80": script}).get("http://a.test/"))["content_encoding"] == "br"


async def secret_harness(*scripts: Any, **more: Any) -> FetchHarness:
    return FetchHarness(
        {"a.test:80": list(scripts), "b.test:80": [[answer(b"b")]]},
        bindings=[BINDING],
        secrets={"global/t": TOKEN},
        **more,
    )


async def test_bound_headers_are_set_and_the_callers_copy_is_not_sent() -> None:
    harness = await secret_harness([answer(b"ok")])
    await harness.get("http://a.test/", headers={"authorization": "Bearer mine", "X": "1"})
    assert f"Authorization: Bearer {TOKEN}\r\n" in harness.requests[0] and "mine" not in harness.requests[0]


async def test_placeholders_are_filled_where_bound() -> None:
    harness = await secret_harness([answer(b"ok")])
    fetch, _ = await harness.run("http://a.test/", headers={"Authorization": "token {{vault:global/t}}"})
    assert f"Authorization: token {TOKEN}\r\n" in harness.requests[0]
    assert fetch.reached[0].secrets == ("global/t",)


async def test_secrets_stay_with_the_host_they_are_for() -> None:
    harness = await secret_harness(redirect("/again"), redirect("http://b.test/"))
    await harness.get("http://a.test/", headers={"Authorization": "token {{vault:global/t}}"})
    assert TOKEN in harness.requests[0] and TOKEN in harness.requests[1] and TOKEN not in harness.requests[2]
    assert "{{vault" not in harness.requests[2]
    assert harness.credentials.asked == ["a.test:80", "a.test:80"]


async def test_a_redirect_that_repeats_the_secret_is_not_followed() -> None:
    harness = await secret_harness(redirect(f"http://b.test/?stolen={TOKEN}"))
    with pytest.raises(RedirectRefused, match="secret") as refusal:
        await harness.get("http://a.test/")
    assert len(harness.requests) == 1 and TOKEN not in str(refusal.value.as_dict())


async def test_a_reflected_secret_is_blacked_out_and_noted() -> None:
    harness = await secret_harness([answer(f"you sent {TOKEN}".encode())])
    outcome, _ = await harness.execute("http://a.test/")
    assert TOKEN not in str(outcome) and outcome.result["text"].startswith("you sent ***")
    noted = harness.noted.events[-1]
    assert isinstance(noted, ResponseRedacted) and noted.secret_ref == "global/t" and noted.times >= 1
