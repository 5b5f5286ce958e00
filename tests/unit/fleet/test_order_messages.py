"""Grants that no honest daemon sends are dropped before they could open anything."""

from typing import Any

import msgspec
import pytest

from palyra.fleet import limits
from palyra.fleet.egress.leases import LeaseGrant, Orders, is_sound

GOOD = LeaseGrant(worker_id="w", lease_id=f"{7:026d}", fence=1, hosts=("a.example",), timeout_ms=1)


def test_an_honest_grant_is_sound() -> None:
    assert is_sound(GOOD)
    assert not Orders().whole


@pytest.mark.parametrize(
    "changes",
    [
        {"lease_id": "../../etc"},
        {"lease_id": ""},
        {"hosts": ("*",)},
        {"hosts": ("a.example",) * (limits.MAX_HOSTS_OF_A_LEASE + 1)},
        {"timeout_ms": 0},
        {"principal": "p" * (limits.MAX_FIELD_CHARS + 1)},
    ],
)
def test_others_are_not(changes: dict[str, Any]) -> None:
    assert not is_sound(msgspec.structs.replace(GOOD, **changes))
