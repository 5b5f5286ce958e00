"""What the package is relied on for, looked at rather than believed."""

import pytest

from palyra.devicelink.pairing.code import stretch
from palyra.devicelink.pairing.proof import MESSAGE_BYTES, DaemonExchange, DeviceExchange, MalformedProof
from palyra.secret import Secret

STRETCHED = stretch(Secret("12345678"), b"s" * 16)


def test_both_sides_of_one_code_have_one_key():
    device, daemon = DeviceExchange(STRETCHED), DaemonExchange(STRETCHED)
    to_daemon, to_device = device.start(), daemon.start()
    assert len(to_daemon) == len(to_device) == MESSAGE_BYTES
    assert device.finish(to_device) == daemon.finish(to_daemon)


def test_the_daemon_needs_no_more_than_the_stretched_code():
    assert b"12345678" not in STRETCHED.hash
    device, daemon = DeviceExchange(stretch(Secret("12345678"), STRETCHED.salt)), DaemonExchange(STRETCHED)
    to_daemon, to_device = device.start(), daemon.start()
    assert device.finish(to_device) == daemon.finish(to_daemon)


def test_another_code_has_another_key_and_nobody_is_told():
    device, daemon = DeviceExchange(stretch(Secret("12345679"), STRETCHED.salt)), DaemonExchange(STRETCHED)
    to_daemon, to_device = device.start(), daemon.start()
    assert device.finish(to_device) != daemon.finish(to_daemon)


SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
]


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_points_that_would_fix_the_key_are_refused(point):
    daemon = DaemonExchange(STRETCHED)
    daemon.start()
    with pytest.raises(MalformedProof):
        daemon.finish(b"A" + bytes.fromhex(point))
    device = DeviceExchange(STRETCHED)
    device.start()
    with pytest.raises(MalformedProof):
        device.finish(b"B" + bytes.fromhex(point))


def test_messages_of_the_same_side_reflected_short_and_repeated_are_refused():
    for make in (
        lambda own: own,
        lambda own: b"A" + own[1:],
        lambda own: b"S" + own[1:],
        lambda own: own[:10],
        lambda own: b"",
        lambda own: b"A" + b"\xff" * 32,
    ):
        daemon = DaemonExchange(STRETCHED)
        own = daemon.start()
        with pytest.raises(MalformedProof):
            daemon.finish(make(own))
        with pytest.raises(MalformedProof):
            daemon.finish(DeviceExchange(STRETCHED).start())
