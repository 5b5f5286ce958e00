import pytest

from palyra.devicelink.server.connections import TAKEOVER_MS, Connected, NodeRegistry, StaleConnection
from palyra.identity.device import DeviceId

ME, OTHER = DeviceId.new(), DeviceId.new()


def connection(device_id: DeviceId = ME, generation: int = 1, received_at: float = 0.0) -> Connected:
    return Connected(device_id=device_id, fingerprint="ab", generation=generation, since_ms=1, received_at=received_at)


def test_a_second_connection_takes_over_and_the_first_takes_nothing_with_it() -> None:
    registry = NodeRegistry()
    first, second, newer = connection(), connection(), connection(generation=2)
    assert registry.attach(first) is None and registry.attach(second) is first
    assert registry.attach(newer) is second and registry.get(ME) is newer
    assert not registry.detach(first) and not registry.detach(second) and registry.online() == (ME,)
    assert registry.detach(newer) and len(registry) == 0 and not registry.detach(newer)


def test_an_older_certificate_does_not_take_over_from_a_newer_one() -> None:
    registry = NodeRegistry()
    newer = connection(generation=3)
    registry.attach(newer)
    with pytest.raises(StaleConnection):
        registry.attach(connection(generation=2))
    assert registry.get(ME) is newer


def test_silence_is_counted_from_the_last_message() -> None:
    registry = NodeRegistry()
    one, two = connection(received_at=10), connection(OTHER, received_at=12)
    registry.attach(one)
    registry.attach(two)
    assert registry.silent(15, 5) == [] and registry.silent(15.1, 5) == [one]
    registry.heartbeat(one, 7, 16)
    registry.note_message(two, 14)
    assert registry.silent(19.5, 5) == [two] and one.running == 7
    assert len(registry) == 2 and registry.get("unknown") is None


def test_takeovers_by_one_certificate_are_counted_while_they_are_quick() -> None:
    registry = NodeRegistry()
    places = [
        Connected(device_id=ME, fingerprint="ab", generation=1, since_ms=ms, received_at=0) for ms in (0, 1, 2, 3)
    ]
    for place in places:
        registry.attach(place)
    assert [place.takeovers for place in places] == [0, 1, 2, 3]
    # One that held its place for long was no party of a fight; a new certificate begins anew.
    late = Connected(device_id=ME, fingerprint="ab", generation=1, since_ms=3 + TAKEOVER_MS, received_at=0)
    renewed = Connected(device_id=ME, fingerprint="cd", generation=2, since_ms=late.since_ms + 1, received_at=0)
    registry.attach(late)
    registry.attach(renewed)
    assert (late.takeovers, renewed.takeovers) == (1, 0)
