import pytest

from palyra.identity.device import DeviceId
from palyra.nodes.domain import rate_limits
from palyra.nodes.domain.rate_limits import DeviceRates, Rate, TooOften

ME, OTHER = DeviceId.new(), DeviceId.new()


def test_a_burst_then_one_at_a_time_and_each_device_by_itself() -> None:
    rates = DeviceRates(Rate(3.0, 0.5))
    for _ in range(3):
        rates.take(ME, 10.0)
    with pytest.raises(TooOften) as caught:
        rates.take(ME, 10.0)
    assert caught.value.details["device"] == ME and 0 < caught.value.details["retry_after_ms"] <= 2_001
    rates.take(OTHER, 10.0)
    rates.take(ME, 12.0)
    with pytest.raises(TooOften):
        rates.take(ME, 12.0)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_TRACKED_DEVICES", 8)
    rates = DeviceRates(Rate(1.0, 0.1))
    for _ in range(100):
        rates.take(DeviceId.new(), 1.0)
    assert len(rates._buckets) == 8
