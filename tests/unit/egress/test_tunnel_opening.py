import pytest

from fakes.egress_harness import hello_for
from palyra.egress.domain.refusal import MalformedTraffic, ServerNameMismatch
from palyra.egress.domain.target import Target
from palyra.egress.protocols.tunnel_opening import Opening, TunnelOpening, scheme_of


def opening(host: str = "site.test", port: int = 443) -> TunnelOpening:
    return TunnelOpening(Target.of(host, port, scheme=scheme_of(port)))


def test_tls_for_the_right_name_passes_however_it_is_cut() -> None:
    hello = hello_for("site.test")
    for cut in (1, 5, 60, len(hello) - 1):
        gate = opening()
        assert gate.receive(hello[:cut]) is Opening.UNKNOWN
        assert gate.receive(hello[cut:]) is Opening.TLS
        assert gate.held == hello


@pytest.mark.parametrize("port", [443, 80, 8443])
@pytest.mark.parametrize("name", ["other.test", "www.site.test", "site.test.evil.example"])
def test_tls_for_another_name_is_refused_on_every_port(port: int, name: str) -> None:
    with pytest.raises(ServerNameMismatch) as caught:
        opening(port=port).receive(hello_for(name))
    assert caught.value.refusal().host == "site.test"


def test_a_missing_name_is_refused_where_the_port_is_for_tls() -> None:
    with pytest.raises(ServerNameMismatch):
        opening().receive(hello_for(None))
    assert opening(port=8443).receive(hello_for(None)) is Opening.TLS
    assert opening("192.0.2.7").receive(hello_for(None)) is Opening.TLS
    with pytest.raises(ServerNameMismatch):
        opening("192.0.2.7").receive(hello_for("site.test"))


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"SSH-2.0-x\r\n", b"\x00\x01"])
def test_the_port_of_tls_is_for_tls(first: bytes) -> None:
    with pytest.raises(MalformedTraffic):
        opening().receive(first)


def test_the_port_of_http_is_for_http() -> None:
    assert opening(port=80).receive(b"GET / HTTP/1.1\r\n") is Opening.HTTP
    with pytest.raises(MalformedTraffic):
        opening(port=80).receive(b"SSH-2.0-x\r\n")


def test_other_ports_take_anything() -> None:
    assert opening(port=22).receive(b"SSH-2.0-x\r\n") is Opening.OTHER
    assert opening(port=8080).receive(b"GET / HTTP/1.1\r\n") is Opening.HTTP


@pytest.mark.parametrize("port", [80, 443])
def test_half_an_opening_of_the_web_is_none(port: int) -> None:
    gate = opening(port=port)
    assert gate.end() is Opening.UNKNOWN
    gate.receive(b"GE")
    with pytest.raises(MalformedTraffic):
        gate.end()


def test_half_a_hello_is_none_on_any_port() -> None:
    gate = opening(port=8443)
    gate.receive(hello_for("site.test")[:50])
    assert gate.server_spoke() is Opening.UNKNOWN
    with pytest.raises(MalformedTraffic):
        gate.end()


def test_words_without_an_end_of_line_are_a_protocol_of_their_own_elsewhere() -> None:
    ended, answered = opening(port=7000), opening(port=7000)
    for gate in (ended, answered):
        assert gate.receive(b"PING") is Opening.UNKNOWN
    assert ended.end() is Opening.OTHER
    assert answered.server_spoke() is Opening.OTHER
    assert ended.held == b"PING"
