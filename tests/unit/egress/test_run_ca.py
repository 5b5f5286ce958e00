"""The authority of a run vouches for its bound hosts, to real TLS clients, and for nobody else."""

import contextlib
import datetime
import socket
import ssl
import threading

import pytest

from palyra.egress import limits
from palyra.egress.proxy.run_authority import RunAuthority, TooManyBoundHosts

NOW = datetime.datetime.now(datetime.UTC)


def handshake(authority: RunAuthority, served: str, asked: str) -> ssl.SSLObject | ssl.SSLSocket:
    near, far = socket.socketpair()
    near.settimeout(10)
    far.settimeout(10)
    context = authority.context_for(served)

    def serve() -> None:
        try:
            with context.wrap_socket(far, server_side=True) as server:
                server.recv(1)
        except (ssl.SSLError, OSError):
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = ssl.create_default_context(cadata=authority.bundle(b"").decode())
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        with client.wrap_socket(near, server_hostname=asked) as connection:
            connection.send(b"x")
            return connection
    finally:
        near.close()
        thread.join()
        far.close()


@pytest.mark.parametrize("host", ["api.example.com", "10.1.2.3", "2001:db8::5"])
def test_a_bound_host_is_trusted(host: str) -> None:
    handshake(RunAuthority("r1", (host,), now=NOW), host, host)


def test_below_a_suffix() -> None:
    handshake(RunAuthority("r1", (".example.com",), now=NOW), "a.example.com", "a.example.com")


def test_another_host_is_not_trusted_even_with_its_key() -> None:
    authority = RunAuthority("r1", ("api.example.com",), now=NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        handshake(authority, "bank.example", "bank.example")


def test_a_certificate_is_for_one_host() -> None:
    authority = RunAuthority("r1", ("example.com",), now=NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(authority, "a.example.com", "b.example.com")


def test_another_runs_authority_is_not_trusted() -> None:
    mine, other = (RunAuthority(run, ("api.example.com",), now=NOW) for run in ("r1", "r2"))
    mine.context_for("api.example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        near, far = socket.socketpair()
        with near, far:
            thread = threading.Thread(target=_serve_once, args=(mine.context_for("api.example.com"), far))
            thread.start()
            try:
                ssl.create_default_context(cadata=other.pem().decode()).wrap_socket(
                    near, server_hostname="api.example.com"
                )
            finally:
                near.close()
                thread.join()


def _serve_once(context: ssl.SSLContext, far: socket.socket) -> None:
    with contextlib.suppress(OSError):
        context.wrap_socket(far, server_side=True).close()


def test_only_http_1_is_offered() -> None:
    context = RunAuthority("r1", ("api.example.com",), now=NOW).context_for("api.example.com")
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_the_bundle_keeps_the_systems_authorities() -> None:
    authority = RunAuthority("r1", ("api.example.com",), now=NOW)
    assert authority.bundle(b"SYSTEM") == b"SYSTEM\n" + authority.pem()


def test_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.egress.proxy.run_authority.MAX_BOUND_HOSTS", 1)
    authority = RunAuthority("r1", (".example.com",), now=NOW)
    authority.context_for("a.example.com")
    with pytest.raises(TooManyBoundHosts):
        authority.context_for("b.example.com")
    assert limits.MAX_BOUND_HOSTS > 1
