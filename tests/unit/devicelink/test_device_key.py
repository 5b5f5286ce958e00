"""The device's key and certificate, against the real authority."""

import pytest

from palyra.devicelink.agent.device_folder import DeviceFileBad
from palyra.devicelink.agent.identity import certificate_request, new_key, read_held_certificate, require_own
from palyra.identity.x509 import read_requested_key
from palyra.secret import Secret


def test_its_request_carries_the_key_and_asks_for_nothing() -> None:
    key = new_key()
    assert read_requested_key(certificate_request(key)) == read_requested_key(certificate_request(key))
    assert read_requested_key(certificate_request(new_key())) != read_requested_key(certificate_request(key))


@pytest.mark.parametrize("text", ["", "not a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_damaged_key_or_certificate_is_said_without_quoting_it(text: str) -> None:
    with pytest.raises(DeviceFileBad):
        certificate_request(Secret(text))
    with pytest.raises(DeviceFileBad):
        read_held_certificate(text, 1)
    with pytest.raises(DeviceFileBad):
        require_own(text, new_key())
