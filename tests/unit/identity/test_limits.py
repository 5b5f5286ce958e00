import pytest

from palyra.identity import limits
from palyra.identity.device import renewal_due_ms
from palyra.identity.settings import IdentitySettings


@pytest.mark.promise("P-device-known")
def test_the_bounds_fit_each_other() -> None:
    assert limits.MIN_CERTIFICATE_SECONDS <= limits.DEFAULT_CERTIFICATE_SECONDS <= limits.MAX_CERTIFICATE_SECONDS
    assert IdentitySettings().certificate_seconds == limits.DEFAULT_CERTIFICATE_SECONDS
    # An authority that is replaced when due outlives every certificate it signed until then.
    left = limits.AUTHORITY_LIFE_MS - (renewal_due_ms(-limits.CLOCK_SKEW_MS, limits.AUTHORITY_LIFE_MS))
    assert left > limits.MAX_CERTIFICATE_SECONDS * 1_000
    # A device in step holds the one in force, the one before it, and one whose answer is under way.
    assert limits.MAX_LIVE_CERTIFICATES >= 3
