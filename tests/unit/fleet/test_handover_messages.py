"""Messages on the doors' socket: strict, bounded, and none by which a worker could ask for more."""

import msgspec
import pytest

from palyra.fleet.egress import handover_protocol as messages
from palyra.fleet.egress.leases import BadHandoverMessage


def test_what_is_written_is_read_again() -> None:
    for request in (
        messages.BindingRequest(id=1, worker_id="w", nonce="n"),
        messages.GrantRequest(id=2, lease_id="l", fence=3),
        messages.OpenRequest(id=3, lease_id="l", fence=3, kinds=("proxy", "dns_udp")),
        messages.CloseRequest(id=4, lease_id="l", fence=3),
    ):
        assert messages.read_request(messages.encode(request)) == request
    reply = messages.HandoverReply(id=4, usage=messages.UsageReply(connections=1, refusals=({"code": "x"},)))
    assert messages.read_reply(messages.encode(reply)) == reply


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"ask":"everything","id":1}',
        b'{"ask":"open","id":1,"lease_id":"l","fence":3,"kinds":[]}',
        b'{"ask":"open","id":1,"lease_id":"l","fence":3,"kinds":["raw"]}',
        b'{"ask":"open","id":-1,"lease_id":"l","fence":3,"kinds":["proxy"]}',
        msgspec.json.encode({"ask": "open", "id": 1, "lease_id": "l", "fence": 3, "kinds": ["proxy"] * 68}),
        msgspec.json.encode({"ask": "bind", "id": 1, "worker_id": "w" * 257, "nonce": ""}),
        # A worker has no say in what a lease reaches.
        b'{"ask":"open","id":1,"lease_id":"l","fence":3,"kinds":["proxy"],"hosts":["evil.example"]}',
        b'{"ask":"grant","id":1,"lease_id":"l","fence":3,"max_bytes":99}',
    ],
)
def test_anything_else_is_refused(packet: bytes) -> None:
    with pytest.raises(BadHandoverMessage):
        messages.read_request(packet)


def test_an_answer_that_is_none_is_refused() -> None:
    with pytest.raises(BadHandoverMessage):
        messages.read_reply(b"{}")
