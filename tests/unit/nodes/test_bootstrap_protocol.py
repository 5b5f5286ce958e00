from palyra.devicelink.limits import MAX_PAIRING_CONNECTIONS, MAX_PAIRING_CONNECTIONS_PER_ADDRESS
from palyra.nodes.pairing.listener import Places


def test_one_network_has_so_many_places_and_a_place_is_given_back_once():
    places = Places()
    taken = [places.take("192.0.2.1") for _ in range(MAX_PAIRING_CONNECTIONS_PER_ADDRESS)]
    assert all(taken) and places.take("192.0.2.1") is None
    assert places.take("192.0.2.2") is not None
    for _ in range(3):
        taken[0].leave()
    assert places.take("192.0.2.1") is not None and places.take("192.0.2.1") is None


def test_all_networks_share_a_total():
    places = Places()
    given = [places.take(f"10.0.{number // 250}.{number % 250}") for number in range(MAX_PAIRING_CONNECTIONS + 10)]
    assert sum(place is not None for place in given) == MAX_PAIRING_CONNECTIONS == places.taken()
    for place in given:
        if place is not None:
            place.leave()
    assert places.taken() == 0


def test_addresses_of_one_ipv6_network_are_one():
    places = Places()
    given = [places.take(f"2001:db8::{number:x}") for number in range(40)]
    assert sum(place is not None for place in given) == MAX_PAIRING_CONNECTIONS_PER_ADDRESS
