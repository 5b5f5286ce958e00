import msgspec
import pytest

from palyra.egress.domain.events import Closed, Connected, CredentialUsed, EgressEvent, Refused, ResponseRedacted
from palyra.egress.domain.refusal import AddressForbidden, IdleTimeout
from palyra.egress.domain.target import Target

TARGET = Target("https", "example.org", 443)


@pytest.mark.parametrize(
    "event",
    [
        Connected(target=TARGET, address="93.184.216.34", face="socks5"),
        Refused.of(AddressForbidden("no", host="example.org", port=443), "connect"),
        Closed(target=TARGET, up=1, down=2, reason="done"),
        CredentialUsed(target=TARGET, secret_ref="global/key", header_name="Authorization", method="GET", path="/"),
        ResponseRedacted(target=TARGET, secret_ref="global/key", times=2),
    ],
)
def test_events_survive_their_encoding(event: EgressEvent) -> None:
    raw = msgspec.json.encode(event)
    assert msgspec.json.decode(raw, type=EgressEvent) == event
    assert msgspec.json.decode(raw)["type"].startswith("egress.")


def test_only_what_an_honest_program_does_not_cause_is_a_violation() -> None:
    assert Refused.of(AddressForbidden("no"), "dns").violation
    assert not Refused.of(IdleTimeout("no"), "http").violation
