import pytest

from palyra.identity.device import (
    TRANSITIONS,
    CertificateExpired,
    CertificateSuperseded,
    DeviceEvent,
    DeviceLocked,
    DeviceRevoked,
    DeviceState,
    find_certificate_refusal,
    find_device_refusal,
)


def test_a_revoked_device_never_changes() -> None:
    assert {state for state, _ in TRANSITIONS} == {DeviceState.ACTIVE, DeviceState.LOCKED}


def test_nothing_leads_back_to_access() -> None:
    assert DeviceState.ACTIVE not in TRANSITIONS.values()
    assert (DeviceState.REVOKED, DeviceEvent.LOCK) not in TRANSITIONS, "a revoked device is not made a locked one"


def test_the_state_decides_first() -> None:
    assert find_device_refusal(DeviceState.ACTIVE, "d") is None
    assert isinstance(find_device_refusal(DeviceState.LOCKED, "d"), DeviceLocked)
    assert isinstance(find_device_refusal(DeviceState.REVOKED, "d"), DeviceRevoked)


@pytest.mark.parametrize(
    ("state", "generation", "now_ms", "refusal"),
    [
        (DeviceState.ACTIVE, 2, 99, None),
        (DeviceState.ACTIVE, 3, 99, None),
        (DeviceState.ACTIVE, 2, 100, CertificateExpired),
        (DeviceState.ACTIVE, 1, 99, CertificateSuperseded),
        (DeviceState.ACTIVE, 1, 100, CertificateExpired),
        (DeviceState.LOCKED, 1, 100, DeviceLocked),
        (DeviceState.REVOKED, 2, 100, DeviceRevoked),
    ],
)
def test_a_certificate_is_refused_for_the_first_reason_that_holds(
    state: DeviceState, generation: int, now_ms: int, refusal: type | None
) -> None:
    found = find_certificate_refusal(
        state=state, device_id="d", generation=generation, used_generation=2, not_after_ms=100, now_ms=now_ms
    )
    assert found is None if refusal is None else isinstance(found, refusal)
