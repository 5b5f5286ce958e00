"""Strict egress with one allowed host, in Tier C, as root and as an ordinary user: ordinary clients with no proxy
settings reach it, and nothing reaches anything else. The host is a network namespace of the test's own."""

import json
import os
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import PALYRA
from fakes.ordinary_user import NOBODY, as_ordinary_user
from fakes.sandboxed import Workshop
from fakes.served_host import DATABASE_PORT, FORBIDDEN_PORT, SSH_PORT, ServedHost, served_host

USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
NAME, BOUND, BENEATH = "api.test", "bound.test", "free.test"
HOSTS = json.dumps([NAME, f"{NAME}:{SSH_PORT}", f"{NAME}:{DATABASE_PORT}", BOUND, BENEATH])
# In the scope of whoever runs `palyra run`: no policy need say more.
SECRET = "principal:user:operator/token"
VALUE = "tok-2f9c/7b+1e=a4d8"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHost]:
    with served_host(
        tmp_path_factory.mktemp("served") / "host", NAME, other_names=("other.test", BOUND, BENEATH)
    ) as host:
        yield host


def settings(host: ServedHost) -> str:
    return f"""
[egress]
allowed_hosts = {HOSTS}
private_targets = {HOSTS}
static_hosts = {{ {", ".join(f'"{name}" = ["{host.address}"]' for name in (NAME, BOUND, BENEATH, "other.test"))} }}
ca_file = "{host.base}/authority.pem"

[[egress.bindings]]
header_name = "Authorization"
secret_ref = "{SECRET}"
hosts = ["{BOUND}"]
prefix = "Bearer "

[sandbox]
allowed_hosts = {HOSTS}
"""


@pytest.fixture(params=USERS)
def workshop(request: pytest.FixtureRequest, tmp_path: Path, host: ServedHost) -> Iterator[Workshop]:
    # pytest's own folders are closed to other users.
    base = Path(tempfile.mkdtemp(prefix="palyra-test-"))
    ordinary = request.param == "ordinary" and os.geteuid() == 0
    palyra = (*as_ordinary_user(tmp_path), *PALYRA) if ordinary else PALYRA
    shutil.copy(host.authority, base / "authority.pem")
    try:
        text = settings(host).replace(str(host.base), str(base))
        workshop = Workshop(base, text, palyra=palyra)
        shutil.copy(host.authority, workshop.workspace / "ca.pem")
        shutil.copy(host.base / "client_key", workshop.workspace / "key")
        if ordinary:
            for path in (base, *base.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        yield workshop
    finally:
        shutil.rmtree(base)


def events(workshop: Workshop, kind: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{workshop.place.state}/palyra.db?mode=ro", uri=True)) as database, database:
        rows = database.execute("SELECT payload FROM events WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
    return [json.loads(row[0]) for row in rows]


RAW = f"""
import socket
with socket.create_connection(("{NAME}", {DATABASE_PORT}), timeout=20) as connection:
    print(connection.recv(100).decode().strip())
    connection.sendall(b"select 1")
    connection.shutdown(socket.SHUT_WR)
    print(connection.recv(100).decode())
"""
NODE = f"fetch('https://{NAME}/x').then(r => r.text()).then(console.log)"
FRUGAL = "--disable-wasm-trap-handler"
HELLO = b"hello from the served host"


@pytest.mark.promise("P-net-named")
def test_ordinary_clients_reach_the_allowed_host(workshop: Workshop, host: ServedHost) -> None:
    assert HELLO in workshop.run("--", "curl", "-sS", "--cacert", "ca.pem", f"https://{NAME}/", check=True).out
    assert HELLO in workshop.run("--", "curl", "-sS", f"http://{NAME}/", check=True).out
    for proxy in ("socks5h://127.0.0.1:1080", "http://127.0.0.1:1080"):
        through = ("curl", "-sS", "--proxy", proxy, "--cacert", "ca.pem")
        assert HELLO in workshop.run("--", *through, f"https://{NAME}/", check=True).out
        assert HELLO in workshop.run("--", *through, f"http://{NAME}/", check=True).out
    urllib = f"import urllib.request as u; print(u.urlopen('http://{NAME}/').read().decode())"
    assert HELLO in workshop.free("python3", "-c", urllib).out
    assert workshop.free("python3", "-c", RAW).out == b"ready\nselect 1\n"
    # Where no control group counts memory the address space is limited, and node would reserve 10 GiB of it.
    assert HELLO in workshop.free("sh", "-c", f'NODE_EXTRA_CA_CERTS=ca.pem node {FRUGAL} -e "{NODE}"').out
    workshop.free("git", "-c", "http.sslCAInfo=ca.pem", "clone", "-q", f"https://{NAME}/repo.git", "by-https")
    ssh = "ssh -i key -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=known"
    workshop.free("sh", "-c", "chmod 600 key")
    workshop.free("git", "-c", f"core.sshCommand={ssh}", "clone", "-q", f"ssh://git@{NAME}/repo.git", "by-ssh")
    for clone in ("by-https", "by-ssh"):
        assert (workshop.workspace / clone / "README").read_text() == "from the served host\n"
    assert not events(workshop, "egress.refused")
    assert {event["address"] for event in events(workshop, "egress.connected")} == {host.address}


ATTEMPTS = """
import json, socket, ssl, sys
name, address, address6, forbidden, outside = sys.argv[1:6]
outcomes = {}

def attempt(label):
    def run(act):
        try:
            outcomes[label] = "REACHED " + repr(act())
        except Exception as error:
            outcomes[label] = type(error).__name__
        return act
    return run

def said(sock, data=b"GET / HTTP/1.1\\r\\nHost: %b\\r\\n\\r\\n" % name.encode()):
    with sock:
        sock.sendall(data)
        got = sock.recv(4096)
        if not got or b" 403 " in got or b" 400 " in got:
            raise ConnectionError(got[:60])
        return got

def dial(host, port, family=0):
    return socket.create_connection((host, int(port)), timeout=5)

def proxied(first, then=None, reply=b"200"):
    sock = dial("127.0.0.1", 1080)
    sock.sendall(first)
    got = sock.recv(4096)
    if reply not in got[:40]:
        raise ConnectionError(got[:60])
    if then is None:
        return got
    return said(sock, then)

def udp(host, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.sendto(b"x", (host, int(port)))
        return sock.recv(100)

def tls(server_name, host):
    context = ssl._create_unverified_context()
    with dial(name, 443) as sock, context.wrap_socket(sock, server_hostname=server_name) as secured:
        return said(secured, b"GET / HTTP/1.1\\r\\nHost: %b\\r\\n\\r\\n" % host.encode())

attempt("another name")(lambda: said(dial("other.test", 80)))
attempt("a name nobody has")(lambda: said(dial("exfiltrated-data.example", 80)))
attempt("a name beneath the allowed one")(lambda: said(dial("x." + name, 80)))
attempt("the address itself")(lambda: said(dial(address, 80)))
attempt("the address at the database port")(lambda: said(dial(address, 5432)))
attempt("IPv6 address")(lambda: said(dial(address6, 80)))
attempt("IPv6 loopback")(lambda: said(dial("::1", 80)))
attempt("mapped address")(lambda: said(dial("::ffff:" + address, 80)))
attempt("another port of the allowed name")(lambda: said(dial(name, forbidden)))
attempt("the machine outside")(lambda: said(dial("127.0.0.1", outside)))
attempt("an unassigned synthetic address")(lambda: said(dial("127.200.0.9", 80)))
attempt("udp to the address")(lambda: udp(address, 53))
attempt("udp to the loopback")(lambda: udp("127.0.0.1", 99))
attempt("udp over IPv6")(lambda: udp(address6, 53, socket.AF_INET6))
attempt("another Host header")(lambda: said(dial(name, 80), b"GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n"))
attempt("no TLS at 443")(lambda: said(dial(name, 443)))
attempt("another SNI")(lambda: tls("other.test", name))
attempt("no SNI")(lambda: tls(None, name))
attempt("CONNECT elsewhere")(lambda: proxied(b"CONNECT other.test:443 HTTP/1.1\\r\\nHost: other.test:443\\r\\n\\r\\n"))
attempt("CONNECT to the address")(
    lambda: proxied(b"CONNECT %b:80 HTTP/1.1\\r\\nHost: %b:80\\r\\n\\r\\n" % (address.encode(), address.encode()))
)

def socks():
    sock = dial("127.0.0.1", 1080)
    sock.sendall(b"\\5\\1\\0")
    sock.recv(2)
    sock.sendall(b"\\5\\1\\0\\1" + socket.inet_aton(address) + b"\\0\\x50")
    if sock.recv(10)[1] != 0:
        raise ConnectionError("refused")
    return said(sock)

def connect_tls(server_name):
    sock = dial("127.0.0.1", 1080)
    sock.sendall(b"CONNECT %b:443 HTTP/1.1\\r\\nHost: %b:443\\r\\n\\r\\n" % (name.encode(), name.encode()))
    sock.recv(4096)
    with ssl._create_unverified_context().wrap_socket(sock, server_hostname=server_name) as secured:
        return said(secured)

def second():
    sock = dial(name, 80)
    sock.sendall(b"GET / HTTP/1.1\\r\\nHost: %b\\r\\n\\r\\n" % name.encode())
    answer = b""
    while not answer.endswith(b"served host\\n"):
        more = sock.recv(4096)
        if not more:
            raise SystemExit("the first request should work")
        answer += more
    return said(sock, b"GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n")

attempt("CONNECT, then another SNI")(lambda: connect_tls("other.test"))
attempt("a second request elsewhere")(second)
attempt("SOCKS to the address")(socks)
print(json.dumps(outcomes))
"""


@pytest.mark.promise("P-net-named")
def test_nothing_else_is_reached_and_each_refusal_is_named(workshop: Workshop, host: ServedHost) -> None:
    before = len(host.arrived())
    workshop.write("attempts.py", ATTEMPTS)
    with socket.create_server(("127.0.0.1", 0)) as outside:
        outside_port = outside.getsockname()[1]
        words = ("python3", "attempts.py", NAME, host.address, host.address6, str(FORBIDDEN_PORT), str(outside_port))
        ran = workshop.run("--allow-interpreters", "--timeout", "90", "--json", "--", *words)
    outcomes = json.loads(ran.data["stdout"])
    assert len(outcomes) == 23
    reached = {label: outcome for label, outcome in outcomes.items() if outcome.startswith("REACHED")}
    assert not reached
    # Connections to the allowed host that were cut before a byte of the client's was passed on are broken to it.
    arrived = [entry for entry in host.arrived()[before:] if entry["what"] != "broken"]
    # The one request that was allowed: the first of two on a connection.
    assert [(entry["what"], entry.get("headers", {}).get("Host")) for entry in arrived] == [("http", NAME)], arrived
    refused = {(event["refusal"]["code"], event["refusal"]["host"]) for event in events(workshop, "egress.refused")}
    assert {
        ("egress.host_not_allowed", "other.test"),
        ("egress.host_not_allowed", "exfiltrated-data.example"),
        ("egress.host_not_allowed", f"x.{NAME}"),
        ("egress.host_not_allowed", "127.200.0.9"),
        ("egress.host_not_allowed", host.address),
        ("egress.host_header_mismatch", "other.test"),
        ("egress.server_name_mismatch", NAME),
        ("egress.malformed_traffic", NAME),
    } <= refused
    line = next(line for line in ran.data["enforcement"] if line["layer"] == "egress")
    assert line["held"] and "refused" in line["got"]


@pytest.mark.promise("P-secret-unseen")
def test_a_program_calls_an_api_with_a_token_that_it_never_sees(workshop: Workshop, host: ServedHost) -> None:
    put = workshop.palyra("vault", "put", SECRET, stdin=VALUE.encode())
    assert put.status == 0, put
    before = len(host.arrived())
    # Without any option: the run's own authority is named in the usual variables.
    asked = workshop.run(
        "--", "curl", "-sS", "-H", "Authorization: Bearer mine", f"https://{BOUND}/headers", check=True
    )
    shown = json.loads(asked.out)["headers"]
    assert shown["Authorization"] == "Bearer " + "*" * len(VALUE)
    urllib = f"import urllib.request as u; print(u.urlopen('https://{BOUND}/headers').read().decode())"
    assert b'"Authorization": "Bearer ***' in workshop.free("python3", "-c", urllib).out
    node = f"fetch('https://{BOUND}/headers').then(r => r.text()).then(console.log)"
    assert b'"Authorization": "Bearer ***' in workshop.free("node", FRUGAL, "-e", node).out
    workshop.run("--", "curl", "-sSL", f"https://{BOUND}/redirect?to=https://{BENEATH}/headers", check=True)
    arrived = [entry for entry in host.arrived()[before:] if entry["what"] == "http"]
    sent = [(entry["headers"]["Host"], entry["headers"].get("Authorization")) for entry in arrived]
    assert sent == [(BOUND, f"Bearer {VALUE}")] * 4 + [(BENEATH, None)]
    # Nowhere a program could look, and nowhere in what we keep.
    look = f"grep -laF {VALUE[9:]} /proc/[0-9]*/environ /etc/palyra/* || echo nowhere"
    assert workshop.free("sh", "-c", look).out == b"nowhere\n"
    kept = [path for path in workshop.place.state.rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if VALUE.encode() in path.read_bytes()]
    used = events(workshop, "egress.credential_used")
    assert [(event["secret_ref"], event["target"]["host"]) for event in used] == [(SECRET, BOUND)] * 4
    assert events(workshop, "egress.response_redacted")


def test_a_bound_host_without_its_secret_is_not_asked(workshop: Workshop, host: ServedHost) -> None:
    before = len(host.arrived())
    asked = workshop.run("--", "curl", "-sS", f"https://{BOUND}/headers")
    assert b"egress.credential_missing" in asked.out
    assert len(host.arrived()) == before
