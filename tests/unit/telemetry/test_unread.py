import inspect

from palyra.telemetry.metrics import UnreadMetrics
from palyra.telemetry.prometheus import PrometheusMetrics


def test_it_takes_whatever_the_counters_take() -> None:
    def methods(of: type) -> dict[str, list[str]]:
        found = inspect.getmembers(of, inspect.isfunction)
        return {name: list(inspect.signature(each).parameters) for name, each in found if not name.startswith("_")}

    assert methods(UnreadMetrics) == methods(PrometheusMetrics)
    assert UnreadMetrics().render() == b""
