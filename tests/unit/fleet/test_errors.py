"""Every refusal of the proxy has a code of its own and says what to do."""

import inspect

from palyra.errors import PalyraError
from palyra.fleet.egress import leases


def test_every_refusal_has_its_code_and_a_hint() -> None:
    found = [
        each
        for _, each in inspect.getmembers(leases, inspect.isclass)
        if issubclass(each, PalyraError) and each.__module__ == leases.__name__
    ]
    assert len({each.code for each in found}) == len(found) >= 15
    assert all(each.code.startswith("worker_egress.") and each.hint for each in found)
