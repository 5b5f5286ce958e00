import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.limits import MAX_SYNTHETIC_NAMES
from palyra.egress.protocols.dns import SyntheticNames, TooManyNames


def test_each_name_has_an_address_and_each_address_its_name() -> None:
    names = SyntheticNames(["a.example", "b.example", "a.example"])
    assert len(names) == 2
    first, second = names.assign("a.example"), names.assign("b.example")
    assert first and second and first != second
    assert names.name_at(first) == "a.example" and names.name_at(second) == "b.example"
    assert names.name_at("127.0.0.1") is None
    assert names.addresses() == (first, second)


def test_a_name_gets_its_address_when_it_is_first_wanted_and_keeps_it() -> None:
    names = SyntheticNames([])
    given = names.assign("x.example")
    assert given is not None and names.assign("x.example") == given


def test_the_addresses_are_loopback_and_nobody_elses() -> None:
    names = SyntheticNames(f"n{at}.example" for at in range(MAX_SYNTHETIC_NAMES))
    addresses = [ipaddress.IPv4Address(address) for address in names.addresses()]
    assert len(set(addresses)) == MAX_SYNTHETIC_NAMES
    assert all(address in ipaddress.IPv4Network("127.128.0.0/16") for address in addresses)
    assert not {int(address) & 255 for address in addresses} & {0, 255}
    assert names.assign("one.more.example") is None and len(names) == MAX_SYNTHETIC_NAMES
    assert names.assign("n0.example") == "127.128.0.1"
    with pytest.raises(TooManyNames):
        SyntheticNames(f"n{at}.example" for at in range(MAX_SYNTHETIC_NAMES + 1))


@given(st.lists(st.text(max_size=5)))
def test_names_and_addresses_are_one_to_one(wanted: list[str]) -> None:
    names = SyntheticNames(wanted)
    assert [names.name_at(names.assign(name) or "") for name in wanted] == wanted
