import csv
import ipaddress
from collections import Counter
from pathlib import Path

import pytest

from palyra.egress.domain import address as table

REGISTRY = Path(__file__).parents[2] / "vectors" / "iana_special_purpose_addresses.csv"


@pytest.mark.promise("P-net-addresses")
def test_every_row_of_the_registries_is_a_row_of_the_table() -> None:
    ours = {prefix for rows in (table.METADATA, table.PRIVATE, table.CLOSED) for prefix, _ in rows}
    ours |= {wrapping.prefix for wrapping in (*table.REFUSED_WRAPPINGS, table.NAT64)}
    with REGISTRY.open(newline="") as file:
        theirs = {row["prefix"] for row in csv.DictReader(file)}
    assert theirs - ours == set()


def test_rows_are_proper_networks_each_named_once() -> None:
    rows = [prefix for rows in (table.METADATA, table.PRIVATE, table.CLOSED) for prefix, _ in rows]
    assert [prefix for prefix in rows if str(ipaddress.ip_network(prefix)) != prefix] == []
    assert [prefix for prefix, times in Counter(rows).items() if times > 1] == []


def test_only_private_networks_and_this_machine_can_be_opened() -> None:
    openable = {
        row.prefix
        for index in (table.IPV4, table.IPV6)
        for _, ranges in index
        for row in ranges.values()
        if row.openable
    }
    assert openable == {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "::1/128", "fc00::/7"}
