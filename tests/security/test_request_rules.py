"""Hosts that take some requests only: real programs in Tier C try to get others through the real proxy, over real TLS.

The servers are in a network namespace of the test's own, under names that exist only in its settings.
"""

import json
import os
import shutil
import sqlite3
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from fakes.bound_host_harness import plan_of
from fakes.browserd_harness import ANNA, browserd
from fakes.daemon import PALYRA
from fakes.documented import DOCS
from fakes.gateway_harness import open_harness
from fakes.loopback import ScriptedServer, read_request
from fakes.ordinary_user import NOBODY, as_ordinary_user
from fakes.sandboxed import Workshop
from fakes.served_host import DATABASE_PORT, ServedHost, served_host
from fakes.web_application import SHOP
from palyra.browser.domain.action import Evaluate, Navigate
from palyra.daemon.settings import load_settings
from palyra.egress.domain.request_rules import RequestRule
from palyra.egress.settings import EgressSettings
from palyra.errors import PalyraError
from palyra.executors.worker.executor import WorkerHosts

READ, PART, FREE, OTHER = "read.test", "part.test", "free.test", "other.test"
NAMES = (READ, PART, FREE, OTHER)
HOSTS = [READ, f"{READ}:{DATABASE_PORT}", PART, FREE, OTHER]
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
RECIPE = DOCS / "how-to" / "protect-a-coding-agent.md"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHost]:
    recipe = [fake(name) for name in recipe_settings()["egress"]["allowed_hosts"]]
    with served_host(tmp_path_factory.mktemp("served") / "host", NAMES[0], other_names=(*NAMES[1:], *recipe)) as host:
        yield host


def settings(host: ServedHost) -> str:
    return f"""
[egress]
allowed_hosts = {json.dumps(HOSTS)}
private_targets = {json.dumps(HOSTS)}
static_hosts = {{ {", ".join(f'"{name}" = ["{host.address}"]' for name in NAMES)} }}
ca_file = "{host.base}/authority.pem"

[[egress.request_rules]]
hosts = ["{READ}", "{READ}:{DATABASE_PORT}"]
methods = ["GET", "HEAD"]
inspect = true

[[egress.request_rules]]
hosts = ["{PART}"]
paths = ["/simple", "/files/"]
inspect = true

[sandbox]
allowed_hosts = {json.dumps(HOSTS)}
"""


def workshop_for(base: Path, host: ServedHost, text: str, *, user: str, tmp_path: Path) -> Workshop:
    ordinary = user == "ordinary" and os.geteuid() == 0
    palyra = (*as_ordinary_user(tmp_path), *PALYRA) if ordinary else PALYRA
    shutil.copy(host.authority, base / "authority.pem")
    made = Workshop(base, text.replace(str(host.base), str(base)), palyra=palyra)
    if ordinary:
        for path in (base, *base.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    return made


@pytest.fixture
def base() -> Iterator[Path]:
    # pytest's own folders are closed to other users.
    base = Path(tempfile.mkdtemp(prefix="palyra-test-"))
    try:
        yield base
    finally:
        shutil.rmtree(base)


@pytest.fixture(params=USERS)
def workshop(request: pytest.FixtureRequest, base: Path, tmp_path: Path, host: ServedHost) -> Workshop:
    return workshop_for(base, host, settings(host), user=request.param, tmp_path=tmp_path)


def refusals(workshop: Workshop) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(f"file:{workshop.place.state}/palyra.db?mode=ro", uri=True)) as database, database:
        rows = database.execute("SELECT payload FROM events WHERE kind = 'egress.refused' ORDER BY seq").fetchall()
    return [(refusal["code"], refusal["host"]) for refusal in (json.loads(row[0])["refusal"] for row in rows)]


def requests(host: ServedHost, before: int) -> list[tuple[str, str, str]]:
    arrived = [entry for entry in host.arrived()[before:] if entry["what"] == "http"]
    return [(entry["method"], entry["headers"]["Host"], entry["path"]) for entry in arrived]


# One shell for all attempts: each prints its number and what came of it.
CURL = "curl -sk -m 20 -o /dev/null -w '%{http_code}\\n' --path-as-is"
NOT_ALLOWED, OVERRIDDEN, ELSEWHERE = (
    "egress.request_not_allowed", "egress.request_overridden", "egress.host_header_mismatch",
)  # fmt: skip
UPLOADS = {
    f"{CURL} -T - https://{READ}/left-pad < /dev/null": NOT_ALLOWED,
    f"{CURL} -d x https://{READ}/legacy/": NOT_ALLOWED,
    f"{CURL} -X DELETE https://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} -X PATCH https://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} -X OPTIONS https://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} -X PUT http://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} -X PUT --proxy http://127.0.0.1:1080 http://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} -X PUT --proxy http://127.0.0.1:1080 https://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} -X PUT --proxy socks5h://127.0.0.1:1080 https://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} --http2 -X PUT https://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} -H 'X-HTTP-Method-Override: PUT' https://{READ}/left-pad": OVERRIDDEN,
    f"{CURL} -H 'X_HTTP_Method: PUT' http://{READ}/left-pad": OVERRIDDEN,
    f"{CURL} -H 'x-original-url: /admin' https://{READ}/left-pad": OVERRIDDEN,
    f"{CURL} 'https://{READ}/left-pad?_method=PUT'": OVERRIDDEN,
    f"{CURL} -X put https://{READ}/left-pad": "egress.malformed_traffic",
    f"{CURL} --request-target https://{OTHER}/left-pad https://{READ}/": "egress.malformed_traffic",
    f"{CURL} --http2-prior-knowledge -X PUT http://{READ}/left-pad": "egress.malformed_traffic",
    f"{CURL} --http2-prior-knowledge -X PUT https://{READ}/left-pad": NOT_ALLOWED,
    f"{CURL} -H 'Host: {OTHER}' https://{READ}/": ELSEWHERE,
    f"{CURL} -H 'X-Forwarded-Host: {OTHER}' https://{READ}/": OVERRIDDEN,
    f"{CURL} --connect-to {OTHER}:443:{READ}:443 -X PUT https://{OTHER}/": "egress.server_name_mismatch",
    f"{CURL} --proxy http://127.0.0.1:1080 -X PUT https://ADDRESS/": "egress.host_not_allowed",
    f"{CURL} --proxy socks5://127.0.0.1:1080 -X PUT https://ADDRESS/": "egress.host_not_allowed",
    f"printf 'raw bytes\\n' | timeout 5 bash -c 'cat >/dev/tcp/{READ}/{DATABASE_PORT}'": "egress.malformed_traffic",
}
ODD = (
    "/", "/upload", "/simplex", "/SIMPLE/", "/simple/../upload", "/simple/..", "/simple/%2e%2e/upload",
    "/simple/.%2E/upload", "/simple/..;/upload", "/simple;/../upload", "/simple/..%3b/upload", "/simple//upload",
    "//upload", "/./upload", "/simple%2f..%2fupload", "/simple/..%2fupload", "/simple/%252e%252e/upload",
    "/simple/..%5cupload", "/simple/%c0%ae%c0%ae/upload", "/simple/%u002e%u002e/upload", "/simple/%00",
    "/upload?/simple/", "/upload;/simple/", "simple/../../upload",
)  # fmt: skip


@pytest.mark.promise("P-net-requests")
def test_no_request_outside_a_hosts_rules_arrives(workshop: Workshop, host: ServedHost) -> None:
    before = len(host.arrived())
    lines = [line.replace("ADDRESS", host.address) for line in UPLOADS]
    lines += [f"{CURL} --request-target '{path}' https://{PART}/" for path in ODD]
    lines.append(f"{CURL} -H 'Destination: https://{PART}/upload' https://{PART}/simple/x")
    workshop.write("attempts.sh", "\n".join(lines) + "\n")
    out = workshop.free("bash", "attempts.sh").out.decode().split()
    assert "200" not in out, dict(zip(lines, out, strict=False))
    assert requests(host, before) == []
    found = [code for code, _ in refusals(workshop)]
    # The last of the odd paths does not begin with a slash.
    odd = [*[NOT_ALLOWED] * (len(ODD) - 1), "egress.malformed_traffic", OVERRIDDEN]
    # Each is recorded when its connection has ended, which may be after the next one began.
    assert Counter(found) == Counter([*UPLOADS.values(), *odd])


@pytest.mark.promise("P-net-requests")
def test_what_the_rules_allow_passes_and_a_second_request_is_judged_again(workshop: Workshop, host: ServedHost) -> None:
    before = len(host.arrived())
    lines = [
        f"curl -sS https://{READ}/left-pad",
        f"curl -sSI https://{READ}/left-pad",
        f"curl -sS 'http://{READ}/left-pad?_format=1'",
        f"curl -sS https://{PART}/simple https://{PART}/simple/left-pad/?a=../.. -d x https://{PART}/files/a%20b",
        f"python3 -c 'import urllib.request as u; print(u.urlopen(\"https://{READ}/by-python\").read().decode())'",
        # Both go over one connection.
        f"curl -sS https://{READ}/first --next -sS -X PUT https://{READ}/second",
        f"curl -sSk -X PUT -H 'Host: {OTHER}' https://{FREE}/inside-tls",
    ]
    workshop.write("allowed.sh", "\n".join(lines) + "\n")
    out = workshop.free("bash", "allowed.sh").out
    assert b"egress.request_not_allowed: PUT /second is not allowed at read.test:443: only GET, HEAD" in out
    assert requests(host, before) == [
        ("GET", READ, "/left-pad"),
        ("HEAD", READ, "/left-pad"),
        ("GET", READ, "/left-pad?_format=1"),
        ("POST", PART, "/simple"),
        ("POST", PART, "/simple/left-pad/?a=../.."),
        ("POST", PART, "/files/a%20b"),
        ("GET", READ, "/by-python"),
        ("GET", READ, "/first"),
        # Nobody looks inside the TLS of a host without rules: threat-model.md says so.
        ("PUT", OTHER, "/inside-tls"),
    ]
    assert refusals(workshop) == [(NOT_ALLOWED, READ)]


@pytest.mark.promise("P-net-requests")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"path": "/simple/x", "method": "PUT", "body": "x"}, NOT_ALLOWED),
        ({"path": "/upload"}, NOT_ALLOWED),
        ({"path": "/simple/../upload"}, NOT_ALLOWED),
        ({"path": "/simple/%2E%2E/upload"}, NOT_ALLOWED),
        ({"path": "/simple/x?_method=PUT"}, OVERRIDDEN),
        ({"path": "/simple/x", "headers": {"Destination": "/upload"}}, OVERRIDDEN),
        ({"path": "/simple/x", "headers": {"X.Original.URL": "/upload"}}, "fetch.forbidden_header"),
        # The server sends the fetch to a path that the rules do not cover.
        ({"path": "/simple/moved"}, NOT_ALLOWED),
    ],
)
async def test_http_fetch_keeps_to_a_hosts_rules(tmp_path: Path, arguments: dict[str, Any], code: str) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /upload\r\nContent-Length: 0\r\n\r\n"
    with ScriptedServer([lambda connection: (read_request(connection), connection.sendall(moved))] * 2) as server:
        hosts = [f"{READ}:{server.port}"]
        egress = {
            "allowed_hosts": hosts,
            "private_targets": hosts,
            "static_hosts": {READ: ["127.0.0.1"]},
            "request_rules": [{"hosts": hosts, "methods": ["GET"], "paths": ["/simple"], "inspect": True}],
        }
        async with open_harness(tmp_path, {"egress": egress, "tools": {"preapproved": ["http.fetch"]}}) as harness:
            url = f"http://{hosts[0]}{arguments.pop('path')}"
            record = await harness.call("http.fetch", {"url": url, **arguments})
            assert record.error is not None and record.error["code"] == code
            # Only the server's own wish is found out after a connection was made.
            made = [kind for kind, _ in harness.events() if kind == "egress.connected"]
            assert len(made) == (1 if "moved" in url else 0)


async def test_who_approves_a_program_sees_what_its_hosts_take(tmp_path: Path) -> None:
    rule = {"hosts": [READ], "methods": ["GET", "HEAD"], "inspect": True}
    egress = {"allowed_hosts": [READ, FREE], "request_rules": [rule, {"hosts": [PART], "inspect": True}]}
    async with open_harness(tmp_path, {"egress": egress, "sandbox": {"allowed_hosts": [READ, FREE]}}) as harness:
        record = await harness.call("process.run", {"command": "true"})
        approval = await harness.approve(record.approval_id)
        assert approval.touches["hosts"] == [READ, FREE]
        assert approval.touches["requests"] == [f"{READ}: only GET, HEAD on every path"]


@pytest.mark.promise("P-net-requests")
async def test_a_worker_is_not_granted_a_host_whose_requests_nobody_could_judge_there(tmp_path: Path) -> None:
    rule = {"hosts": [READ, f"{PART}:8443"], "methods": ["GET"], "inspect": True}
    hosts = [READ, FREE, f"{PART}:8443", f"{PART}:9443"]
    egress = {"allowed_hosts": hosts, "request_rules": [rule]}
    async with open_harness(tmp_path, {"egress": egress, "sandbox": {"allowed_hosts": hosts}}) as harness:
        reached = WorkerHosts(harness.gateway.settings.sandbox, harness.gateway.egress)
        granted, _, _ = reached(plan_of(harness))
        assert granted == (f"{FREE}:80", f"{FREE}:443", f"{PART}:9443")


@pytest.mark.promise("P-net-requests")
async def test_the_browser_keeps_to_a_hosts_rules(tmp_path: Path) -> None:
    """Pages of a real Chromium try to write, by every means that a page has, and to ask for other paths."""

    def egress(port: int) -> EgressSettings:
        rule = RequestRule(hosts=(f"{SHOP}:{port}",), methods=("GET",), paths=("/login", "/orders"), inspect=True)
        return EgressSettings(request_rules=(rule,))

    async with browserd(tmp_path, egress=egress) as harness:
        session = (await harness.open()).session_id

        async def run(script: str) -> tuple[str, ...]:
            report = await harness.client.act(ANNA, session, [Evaluate(expression=f"(async () => {{ {script} }})()")])
            assert report.problem is None
            return report.outcomes[0].refused

        await harness.client.navigate(ANNA, session, Navigate(url=harness.url("/login")))
        for attempt in (
            "await fetch('/login', {method: 'POST', body: 'a=b'}).catch(() => 0)",
            "await fetch('/login', {method: 'PUT', body: 'a'}).catch(() => 0)",
            "await fetch('/login', {headers: {'X-HTTP-Method-Override': 'PUT'}}).catch(() => 0)",
            "await fetch('/login?_method=PUT').catch(() => 0)",
            "await fetch('/echo').catch(() => 0)",
            "await fetch('/login/..%2fecho').catch(() => 0)",
            "const r = new XMLHttpRequest(); r.open('DELETE', '/login', false); try { r.send() } catch {}",
            "await new Promise(done => { const i = new Image(); i.onerror = done; i.src = '/echo' })",
        ):
            assert await run(attempt), attempt
        await run("navigator.sendBeacon('/login', 'a')")
        with pytest.raises(PalyraError):
            await harness.client.navigate(ANNA, session, Navigate(url=harness.url("/echo")))
        await harness.client.navigate(ANNA, session, Navigate(url=harness.url("/login")))
        await run("const f = document.createElement('form'); f.method = 'POST'; document.body.append(f); f.submit()")
        # The submission is a navigation too: it is over, one way or the other, when this one is.
        with suppress(PalyraError):
            await harness.client.navigate(ANNA, session, Navigate(url=harness.url("/login")))
        assert {(method, path) for method, _, path in harness.site.requests} == {("GET", "/login")}
        assert not harness.site.typed


def fake(name: str) -> str:
    return name.replace(".", "-") + ".test"


def recipe_settings() -> dict[str, Any]:
    """The settings that the page for coding agents shows."""
    blocks = RECIPE.read_text().split("```toml\n")[1:]
    return tomllib.loads(blocks[0].partition("```")[0])


@pytest.mark.promise("P-net-requests")
def test_a_coding_agent_reads_registries_and_publishes_to_none(base: Path, tmp_path: Path, host: ServedHost) -> None:
    """The names of the page stand for servers of the test: none of them is ever asked."""
    shown = recipe_settings()
    names = shown["egress"]["allowed_hosts"]
    assert set(shown["sandbox"]["allowed_hosts"]) == set(names)
    assert {"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "index.crates.io", "proxy.golang.org"} <= set(
        names
    )
    hosts = json.dumps([fake(name) for name in names])
    text = f"[sandbox]\nallow_interpreters = true\nallowed_hosts = {hosts}\n[egress]\nallowed_hosts = {hosts}\n"
    text += f'private_targets = {hosts}\nca_file = "{host.base}/authority.pem"\n[egress.static_hosts]\n'
    text += "".join(f'"{fake(name)}" = ["{host.address}"]\n' for name in names)
    for rule in shown["egress"]["request_rules"]:
        rule["hosts"] = [fake(name) for name in rule["hosts"]]
        text += "[[egress.request_rules]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rule.items())
    workshop = workshop_for(base, host, text, user="root", tmp_path=tmp_path)
    before = len(host.arrived())
    lines = []
    for name in map(fake, names):
        lines += [f"curl -sSf https://{name}/a-package", f"curl -sSfI https://{name}/a-package"]
        for publish in ("-T -", "-d x", "-X DELETE", "-X PATCH", "-H 'X-HTTP-Method-Override: PUT'"):
            lines.append(f"{CURL} {publish} https://{name}/a-package < /dev/null")
    npm = fake("registry.npmjs.org")
    lines.append(f"curl -sSf -d '{{}}' https://{npm}/-/npm/v1/security/advisories/bulk")
    lines.append(f"{CURL} -d x https://{npm}/-/npm/v1/security/../../../a-package")
    workshop.write("session.sh", "\n".join(lines) + "\n")
    workshop.free("bash", "session.sh")
    expected = [(method, fake(name), "/a-package") for name in names for method in ("GET", "HEAD")]
    assert requests(host, before) == [*expected, ("POST", npm, "/-/npm/v1/security/advisories/bulk")]
    assert len(refusals(workshop)) == 5 * len(names) + 1
    # And as people do it, with a token that was found somewhere.
    before = len(host.arrived())
    workshop.write("package.json", '{"name": "a-package", "version": "1.0.0"}')
    workshop.write(
        "publish.sh",
        f"export HOME=$PWD NODE_OPTIONS=--disable-wasm-trap-handler npm_config_registry=https://{npm}/\n"
        f"npm publish --//{npm}/:_authToken=found 2>&1 || true\n",
    )
    assert b"403 Forbidden by Palyra - PUT" in workshop.free("bash", "publish.sh").out
    assert {method for method, _, _ in requests(host, before)} == {"GET"}


@pytest.mark.promise("P-net-requests")
def test_a_star_does_not_open_the_names_of_strangers(base: Path, tmp_path: Path, host: ServedHost) -> None:
    """The operator's own word opens a provider's names. Nothing is asked for by name in either case."""
    workshop = workshop_for(base, host, "", user="root", tmp_path=tmp_path)
    for rule in ("*.co.uk", "*.github.io", "*.amazonaws.com", "*.GitHub.io:443"):
        refused = workshop.run("--allow-host", rule, "--", "true", json=True).error
        assert (refused["code"], "would allow" in refused["message"]) == ("config.invalid_value", True), refused
    binding = (
        '[[egress.bindings]]\nheader_name = "Authorization"\nsecret_ref = "global/token"\nhosts = ["*.github.io"]\n'
    )
    for text, passes in (
        (binding, False),
        ('[egress]\nshared_suffixes = ["github.io"]\n' + binding, True),
        ('[egress]\nshared_suffixes = ["co.uk"]\n' + binding.replace("github.io", "co.uk"), False),
    ):
        workshop.place.config.write_text(text)
        assert (workshop.run("--allow-host", "site.example", "--", "true").status == 0) is passes, text


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ('hosts = ["a.example"]\nmethods = ["GET"]', "inspect = true"),
        ('hosts = ["a.example"]\npaths = ["/simple"]', "inspect = true"),
        ('hosts = ["a.example:80"]\nmethods = ["GET"]\ninspect = false', "inspect = true"),
        ('hosts = ["a.example"]', "inspect = true"),
        ("hosts = []\ninspect = true", "names no hosts"),
        ('hosts = ["*"]\ninspect = true', "no host rule"),
        ('hosts = ["a.example"]\nmethods = ["get"]\ninspect = true', "capitals"),
        ('hosts = ["a.example"]\nmethods = ["GET\\r\\nX: y"]\ninspect = true', "no HTTP method"),
        ('hosts = ["a.example"]\npaths = []\ninspect = true', "would allow no request"),
        ('hosts = ["a.example"]\npaths = ["/a/../b"]\ninspect = true', "no plain path"),
        ('hosts = ["a.example"]\npaths = ["/a%2fb"]\ninspect = true', "no plain path"),
        ('hosts = ["a.example"]\npaths = ["a"]\ninspect = true', "no plain path"),
        ('hosts = ["a.example"]\nmethod = ["GET"]\ninspect = true', "method"),
    ],
)
def test_a_rule_that_could_not_be_held_is_refused(tmp_path: Path, rule: str, why: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"[[egress.request_rules]]\n{rule}\n")
    with pytest.raises(PalyraError) as refused:
        load_settings(config, {}, {})
    assert why in refused.value.message + (refused.value.hint or ""), refused.value.message
