"""Attacks by what a tool sends to a host with a credential."""

from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from fakes.bound_host_harness import PLACEHOLDER, TOKEN, sandboxed
from palyra.egress.proxy import run_authority

pytestmark = pytest.mark.promise("P-secret-unseen")


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization: Bearer mine\r\n",
        "AUTHORIZATION: Bearer mine\r\nauthorization: Bearer mine\r\n",
        "Authorization:Bearer mine\r\n",
        "Connection: X-Other\r\nauthorization:\tBearer mine\r\n",
    ],
)
async def test_the_tools_own_credential_never_goes_along(tmp_path: Path, headers: str) -> None:
    async with sandboxed(tmp_path) as it:
        await it.get("/", headers)
        assert b"mine" not in it.received[0] and it.received[0].lower().count(b"authorization:") == 1


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization : Bearer mine\r\n",
        "X: y\r\n Authorization: Bearer mine\r\n",
        "Connection: authorization\r\n",
        f"X-Other: {PLACEHOLDER}\r\n",
        "Authorization: {{vault:global/other}}\r\n",
        f"Authorization: {PLACEHOLDER} {{{{vault:global/other}}}}\r\n",
    ],
)
async def test_heads_that_two_servers_read_differently_and_foreign_placeholders_go_nowhere(
    tmp_path: Path, headers: str
) -> None:
    async with sandboxed(tmp_path) as it:
        got = await it.get("/", headers)
        assert got.split(b" ", 2)[1] in (b"400", b"403") and it.received == []


async def test_a_request_behind_another_goes_nowhere_through_a_bound_host(tmp_path: Path) -> None:
    async with sandboxed(tmp_path) as it:
        host = f"api.test:{it.port}"
        first = f"POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
        await it.say(f"{first}GET http://other.test:{it.port}/ HTTP/1.1\r\nHost: other.test:{it.port}\r\n\r\n".encode())
        assert len(it.received) == 1
        await it.say(
            f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
            f"GET /a HTTP/1.1\r\nHost: {host}\r\n\r\nGET /b HTTP/1.1\r\nHost: other.test:{it.port}\r\n\r\n".encode(),
        )
        assert [head.split(b" ")[1] for head in it.received] == [b"/", b"/a"]


@pytest.mark.parametrize(
    "path",
    [f"/repos/acme{rest}" for rest in ("/../x", "/%2e%2e/x", "/..;/x", "//x", "/%2Fx", "\\x")],
)
async def test_paths_that_can_be_read_as_others_get_no_secret(tmp_path: Path, path: str) -> None:
    async with sandboxed(tmp_path) as it:
        bound = msgspec.structs.replace(vars(it.listener)["_grant"].bindings[0], path_prefix="/repos/acme")
        it.harness.gateway.egress.proxy.reconsider(lambda grant: msgspec.structs.replace(grant, bindings=(bound,)))
        got = await it.get(path)
        assert got.split(b" ", 2)[1] in (b"400", b"403") and it.received == []
        for outside in ("/repos", "/repos/acmex", "/REPOS/acme", "/?/repos/acme"):
            await it.get(outside)
        assert len(it.received) == 4 and TOKEN.encode() not in b"".join(it.received)


def test_an_authority_for_names_vouches_for_no_address() -> None:
    import datetime

    authority = run_authority.RunAuthority("r", ("api.test", ".below.test"), now=datetime.datetime.now(datetime.UTC))
    certificate = x509.load_pem_x509_certificate(authority.pem())
    constraints = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    excluded = [str(each.value) for each in constraints.excluded_subtrees or ()]
    assert excluded == ["0.0.0.0/0", "::/0"]
