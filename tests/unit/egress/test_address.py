"""Properties against the registries' own rows, kept as a file of facts."""

import csv
import ipaddress
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from palyra.egress.domain.address import embedded_ipv4, judge_address, parse_address, range_of
from palyra.egress.domain.refusal import AddressForbidden

REGISTRY = Path(__file__).parents[2] / "vectors" / "iana_special_purpose_addresses.csv"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
with REGISTRY.open(newline="") as _file:
    ROWS = [(ipaddress.ip_network(row["prefix"]), row["globally_reachable"]) for row in csv.DictReader(_file)]
NOT_GLOBAL = [network for network, reachable in ROWS if reachable != "True"]
SPECIAL_V4 = [network for network, _ in ROWS if network.version == 4]
SPECIAL_V6 = [network for network, _ in ROWS if network.version == 6]
NAT64 = ipaddress.ip_network("64:ff9b::/96")
METADATA = [
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe"),
]


def inside(network: Network) -> st.SearchStrategy[int]:
    return st.integers(int(network.network_address), int(network.broadcast_address))


def v6(value: int) -> str:
    return str(ipaddress.IPv6Address(value))


def teredo(server: int, client: int) -> str:
    return v6(0x2001_0000 << 96 | server << 64 | (client ^ 0xFFFF_FFFF))


PUBLIC_V4 = 0x0808_0808
# Each way to write one IPv4 address into an IPv6 one.
FORMS: dict[str, Callable[[int], str]] = {
    "mapped": lambda inner: v6(0xFFFF << 32 | inner),
    "compatible": lambda inner: v6(inner),
    "translated": lambda inner: v6(0xFFFF << 48 | inner),
    "6to4": lambda inner: v6(0x2002 << 112 | inner << 80 | 1),
    "teredo client": lambda inner: teredo(PUBLIC_V4, inner),
    "teredo server": lambda inner: teredo(inner, PUBLIC_V4),
    "nat64": lambda inner: v6(0x0064_FF9B << 96 | inner),
    "local nat64": lambda inner: v6(0x0064_FF9B_0001 << 80 | inner),
    "local nat64, split": lambda inner: v6(0x0064_FF9B_0001 << 80 | (inner >> 16) << 64 | (inner & 0xFFFF) << 40),
    "isatap": lambda inner: v6(0x2A00_1450 << 96 | 0x5EFE << 32 | inner),
    "isatap, public": lambda inner: v6(0x2A00_1450 << 96 | 0x0200_5EFE << 32 | inner),
}


def refused(address: str, *, allow_private: bool = False, own: frozenset[str] = frozenset()) -> str:
    with pytest.raises(AddressForbidden) as refusal:
        judge_address(address, allow_private=allow_private, own=own)
    assert refusal.value.details["address"] == address
    return str(refusal.value.details["range"])


@st.composite
def not_global(draw: st.DrawFn, networks: list[Network]) -> str:
    network = draw(st.sampled_from(networks))
    return str(network.network_address + (draw(inside(network)) - int(network.network_address)))


@pytest.mark.promise("P-net-addresses")
@settings(max_examples=1_000)
@given(not_global(NOT_GLOBAL))
def test_every_address_that_is_not_global_is_refused(address: str) -> None:
    # The registry's 0000::/8 holds the one wrapping in which the inner address decides.
    assume(ipaddress.ip_address(address) not in NAT64)
    refused(address)


@pytest.mark.parametrize("network", [network for network, _ in ROWS if network != NAT64], ids=str)
def test_the_edges_of_every_row_are_refused(network: Network) -> None:
    refused(str(network.network_address))
    refused(str(network.broadcast_address))


@pytest.mark.promise("P-net-addresses")
@settings(max_examples=1_000)
@given(not_global([network for network in NOT_GLOBAL if network.version == 4]), st.sampled_from(sorted(FORMS)))
def test_every_embedded_form_of_it_is_refused_too(address: str, form: str) -> None:
    wrapped = FORMS[form](int(ipaddress.IPv4Address(address)))
    refused(wrapped)
    # 0.0.0.1 in the compatible form is the loopback address of IPv6, which may be opened.
    assume(wrapped != "::1")
    refused(wrapped, allow_private=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", SPECIAL_V4, ids=str)
def test_the_edges_of_every_row_are_refused_in_every_form(network: Network, form: str) -> None:
    for edge in (network.network_address, network.broadcast_address):
        refused(FORMS[form](int(edge)), allow_private=True)


@given(st.integers(0x100, 2**32 - 1))
@pytest.mark.parametrize("form", FORMS)
def test_the_inner_address_is_found(form: str, inner: int) -> None:
    assert str(ipaddress.IPv4Address(inner)) in embedded_ipv4(FORMS[form](inner))


@given(st.integers(0x0100_0000, 0xDFFF_FFFF))
def test_other_public_ipv4_addresses_pass(value: int) -> None:
    address = ipaddress.IPv4Address(value)
    assume(not any(address in network for network in SPECIAL_V4) and str(address) not in METADATA)
    assert range_of(str(address)) is None
    judge_address(str(address), allow_private=False, own=frozenset())
    # Through the translator that IPv6-only networks have, and through no other wrapping.
    judge_address(FORMS["nat64"](value), allow_private=False, own=frozenset())
    for form in FORMS.keys() - {"nat64"}:
        refused(FORMS[form](value), allow_private=True)


@given(st.integers(0x2000 << 112, (0x4000 << 112) - 1))
def test_other_global_unicast_ipv6_addresses_pass(value: int) -> None:
    address = ipaddress.IPv6Address(value)
    assume(not any(address in network for network in SPECIAL_V6) and value >> 112 != 0x3FFE)
    assume(value >> 32 & 0xFDFF_FFFF != 0x5EFE)
    judge_address(str(address), allow_private=False, own=frozenset())


@settings(max_examples=300)
@given(st.integers(0, 2**128 - 1))
def test_no_ipv6_address_outside_the_allocated_eighth_passes(value: int) -> None:
    address = ipaddress.IPv6Address(value)
    assume(address not in ipaddress.ip_network("2000::/3") and address not in NAT64)
    refused(str(address))


@pytest.mark.parametrize(
    "address",
    [
        *("64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::1", "2002:7f00:1::"),
        *("2002:a9fe:a9fe::1", "2002:808:808::1", "::127.0.0.1", "::10.0.0.1", "::8.8.8.8", "168.63.129.16"),
        *("224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1", "::ffff:0:127.0.0.1", "fec0::1", "3fff::1", "5f00::1"),
    ],
)
def test_what_the_standard_library_lets_through_is_refused(address: str) -> None:
    """Some of these ``ipaddress`` calls global in one version of Python or another; the table does not ask it."""
    refused(address)


@pytest.mark.parametrize("address", METADATA)
def test_metadata_never_opens(address: str) -> None:
    for spelled in (address, *(form(int(parse_address(address))) for form in FORMS.values() if "." in address)):
        refused(spelled, allow_private=True)


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "172.31.255.255", "192.168.0.1", "127.0.0.1", "127.255.0.1", "::1", "fc00::1", "fd12::1"]
)
def test_a_named_private_target_opens_private_ranges(address: str) -> None:
    refused(address)
    judge_address(address, allow_private=True, own=frozenset({address}))


@pytest.mark.parametrize(
    "address",
    [
        *(
            "169.254.1.1",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
        ),
        *("fe80::1", "::", "ff02::1", "2001:db8::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "fd00::5efe:10.0.0.1"),
    ],
)
def test_and_no_other_range(address: str) -> None:
    refused(address, allow_private=True)


def test_this_machines_own_addresses_are_refused_in_every_form() -> None:
    own = frozenset({"8.8.4.4", "2a00::1"})
    assert "own" in refused("8.8.4.4", own=own) and "own" in refused("2a00::1", own=own)
    assert "own" in refused("64:ff9b::8.8.4.4", own=own)
    judge_address("8.8.4.4", allow_private=True, own=own)
    refused("64:ff9b::8.8.4.4", allow_private=True, own=own)
    judge_address("2a00:0:0::2", allow_private=False, own=own)
    refused("2a00:0:0::1", own=own)


@pytest.mark.parametrize("text", ["", "fe80::1%eth0", "2a00::1%1", "8.8.8", "134744072", "0x8.8.8.8", "8.8.8.8 ", "x"])
def test_what_is_no_plain_address_is_refused(text: str) -> None:
    refused(text)


def test_the_refusal_names_the_range() -> None:
    assert "loopback" in refused("127.0.0.1")
    assert refused("::ffff:169.254.169.254").startswith("IPv4-mapped address (RFC 4291) around cloud metadata")
    assert "private network" in refused("2001:0:808:808::f5ff:fffe")
