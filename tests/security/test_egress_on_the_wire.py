"""The way out over a real link: IPv6 targets, and an operator's own proxy in between.

The far side is a network namespace of the test's own. A server there says from which address it was reached, so that a
connection through the operator's proxy, which is on its side, can be told from one of ours.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest

from fakes import egress_proxy_main
from fakes.egress_harness import SITE, EgressHarness, harness
from fakes.eventually import eventually
from fakes.served_host import ServedHost, served_host
from palyra.egress.proxy.dial import Upstream

PORT = 7000
TELL = """
import socket, sys, threading
def serve(listening):
    while True:
        connection, peer = listening.accept()
        with connection:
            connection.sendall(peer[0].encode() + b"\\n")
            connection.recv(1000)
listening = [
    socket.create_server((address, int(sys.argv[1])), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    for address in sys.argv[2:]
]
for each in listening:
    threading.Thread(target=serve, args=(each,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def over_there(host: ServedHost, *words: str) -> Iterator[tuple["subprocess.Popen[bytes]", bytes]]:
    """A program in the host's network that has said its first line; it ends with its input."""
    command = ["nsenter", "-t", str(host.process.pid), "-n", sys.executable, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.stdin.close()
            process.wait(60)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHost]:
    with (
        served_host(tmp_path_factory.mktemp("wire") / "host", SITE) as host,
        over_there(host, "-c", TELL, str(PORT), host.address, host.address6) as (_, line),
    ):
        assert line == b"ready\n"
        yield host


def far6(host: ServedHost) -> str:
    return str(ip_address(host.address6))


def near6(host: ServedHost) -> str:
    return str(ip_address(host.address6) - 1)


async def reached_from(stage: EgressHarness, authority: str) -> str:
    """The address that the server saw; empty if the proxy did not connect."""
    client = await stage.client()
    await client.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    head = await client.head()
    seen = (await client.reader.readline()).decode().strip() if b" 200 " in head else ""
    await client.close()
    return seen


@pytest.mark.promise("P-net-addresses")
async def test_an_ipv6_address_is_reached_under_its_rule_however_it_is_spelled(host: ServedHost) -> None:
    whole = ip_address(host.address6).exploded.upper()
    async with harness(f"[{host.address6}]:{PORT}") as stage:
        for spelled in (host.address6, whole):
            assert await reached_from(stage, f"[{spelled}]:{PORT}") == near6(host)
        by_name, code = await stage.socks(host.address6, PORT)
        assert code == 0
        assert (await by_name.reader.readline()).decode().strip() == near6(host)
        await by_name.close()
        assert stage.recorder.codes() == []
        assert {event.address for event in stage.recorder.connected()} == {far6(host)}


async def test_a_name_with_an_ipv6_address_is_reached_at_it(host: ServedHost) -> None:
    async with harness(f"{SITE}:{PORT}", addresses={SITE: (host.address6, host.address)}) as stage:
        assert await reached_from(stage, f"{SITE}:{PORT}") == near6(host)
    # The first answers on another port only, so the next is tried, of whichever family.
    with over_there(host, "-c", TELL, "7001", host.address) as (_, line):
        assert line == b"ready\n"
        async with harness(f"{SITE}:7001", addresses={SITE: (host.address6, host.address)}) as stage:
            assert await reached_from(stage, f"{SITE}:7001") == host.gateway


@pytest.mark.promise("P-net-addresses")
async def test_ipv6_forms_of_what_is_not_allowed_never_arrive(host: ServedHost) -> None:
    mapped = f"::ffff:{host.address}"
    translated = f"64:ff9b::{host.address}"
    scoped = f"{host.address6}%lo"
    async with harness(f"{host.address}:{PORT}", f"[{host.address6}]:{PORT + 1}") as stage:
        for address in (mapped, translated, scoped, host.address6, near6(host)):
            assert await reached_from(stage, f"[{address}]:{PORT}") == ""
        assert stage.recorder.connected() == []
        assert len(stage.recorder.codes()) == 5
        assert all(refused.violation for refused in stage.recorder.refusals())
    # A rule for such a form does not open it, nor does naming it a private target; nor a name that resolves to it.
    for address in (mapped, translated, "fe80::1", "::1"):
        private = () if address == "::1" else None
        async with harness(f"[{address}]:{PORT}", private=private) as stage:
            assert await reached_from(stage, f"[{address}]:{PORT}") == ""
            assert stage.recorder.codes() == ["egress.address_forbidden"]
        async with harness(f"{SITE}:{PORT}", private=private, addresses={SITE: (host.address6, address)}) as stage:
            assert await reached_from(stage, f"{SITE}:{PORT}") == ""
            assert stage.recorder.codes() == ["egress.address_forbidden"]
    # The network of the link is private: without the host among the private targets it is closed.
    async with harness(f"[{host.address6}]:{PORT}", private=()) as stage:
        assert await reached_from(stage, f"[{host.address6}]:{PORT}") == ""
        assert stage.recorder.codes() == ["egress.address_forbidden"]


@contextmanager
def operators_proxy(host: ServedHost, address: str, *sites: str) -> Iterator[tuple[str, list[dict[str, int]]]]:
    """A proxy in the host's network. At its end the list has what it counted."""
    where = f"[{address}]:0" if ":" in address else f"{address}:0"
    words = [egress_proxy_main.__file__, "--until-input-ends", "--listen", where]
    words += [word for site in sites for option in ("--allow", "--private-target") for word in (option, site)]
    words += ["--static", f"{SITE}={host.address}"]
    counted: list[dict[str, int]] = []
    with over_there(host, *words) as (process, line):
        port = json.loads(line)["port"]
        yield where.removesuffix(":0") + f":{port}", counted
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        counted.append(json.loads(process.stdout.read().splitlines()[-1]))


@pytest.mark.promise("P-net-named")
@pytest.mark.parametrize("kind", ["http", "socks5", "socks5h"])
@pytest.mark.parametrize("family", ["address", "address6"])
async def test_everything_goes_through_the_operators_proxy(host: ServedHost, kind: str, family: str) -> None:
    at = getattr(host, family)
    # Names are left to it only by the operator's word; else it is told the judged address.
    site = f"{SITE}:{PORT}" if kind == "socks5h" else f"{host.address}:{PORT}"
    with operators_proxy(host, at, site) as (where, counted):
        upstream = Upstream.parse(f"{kind}://{where}")
        async with harness(f"{SITE}:{PORT}", addresses={SITE: (host.address,)}, upstream=upstream) as stage:
            for _ in range(3):
                assert await reached_from(stage, f"{SITE}:{PORT}") == host.address
            by_socks, code = await stage.socks(SITE, PORT)
            assert code == 0
            assert (await by_socks.reader.readline()).decode().strip() == host.address
            await by_socks.close()
            # What we refuse it never hears of.
            for refused in ("other.test:443", f"{SITE}:{PORT + 1}", f"{host.address}:{PORT}", f"{host.address}:22"):
                assert await reached_from(stage, refused) == ""
            assert stage.recorder.codes() == ["egress.host_not_allowed"] * 4
            assert stage.resolver.asked.count(SITE) == (0 if kind == "socks5h" else 4)
            await eventually(lambda: stage.proxy.tunnels == 0)
    assert (counted[0]["connections"], counted[0]["refused"]) == (4, 0)


@pytest.mark.promise("P-net-named")
@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_what_the_operators_proxy_refuses_is_not_tried_another_way(host: ServedHost, kind: str) -> None:
    """The target is on the same link, and would answer us directly."""
    with operators_proxy(host, host.address, "elsewhere.test") as (where, counted):
        upstream = Upstream.parse(f"{kind}://{where}")
        async with harness(f"{SITE}:{PORT}", addresses={SITE: (host.address,)}, upstream=upstream) as stage:
            assert await reached_from(stage, f"{SITE}:{PORT}") == ""
            assert stage.recorder.codes() == ["egress.unreachable"]
            assert stage.recorder.connected() == []
    assert (counted[0]["connections"], counted[0]["refused"]) == (0, 1)
    # Now nobody is there at all.
    async with harness(f"{SITE}:{PORT}", addresses={SITE: (host.address,)}, upstream=upstream) as stage:
        assert await reached_from(stage, f"{SITE}:{PORT}") == ""
        assert stage.recorder.codes() == ["egress.unreachable"]
