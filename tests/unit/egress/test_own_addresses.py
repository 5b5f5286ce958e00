import pytest

from palyra.egress.limits import OWN_ADDRESSES_FRESH_SECONDS
from palyra.egress.proxy.resolver import OwnAddresses, OwnAddressesUnknown, read_own_addresses


def test_this_machine_has_loopback() -> None:
    found = read_own_addresses()
    assert "127.0.0.1" in found and not any("%" in address for address in found)


class Machine:
    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.addresses: frozenset[str] | None = frozenset({"8.8.8.8"})

    def read(self) -> frozenset[str]:
        self.asked += 1
        if self.addresses is None:
            raise OwnAddressesUnknown("no")
        return self.addresses


def test_the_system_is_asked_again_after_a_while() -> None:
    machine = Machine()
    own = OwnAddresses(read=machine.read, now=lambda: machine.now)
    assert own() == own() == {"8.8.8.8"} and machine.asked == 1
    machine.addresses = frozenset({"9.9.9.9"})
    machine.now = OWN_ADDRESSES_FRESH_SECONDS
    assert own() == {"9.9.9.9"}


def test_a_system_that_cannot_tell_leaves_the_last_answer_and_never_an_empty_one() -> None:
    machine = Machine()
    own = OwnAddresses(read=machine.read, now=lambda: machine.now)
    own()
    machine.addresses = None
    machine.now = OWN_ADDRESSES_FRESH_SECONDS
    assert own() == {"8.8.8.8"}
    with pytest.raises(OwnAddressesUnknown):
        OwnAddresses(read=machine.read, now=lambda: machine.now)()
