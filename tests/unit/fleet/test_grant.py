from typing import Any

import msgspec
import pytest

from fakes.fleet_peers import FleetPeers
from palyra.errors import PalyraError
from palyra.fleet.domain.lease import GrantExpired, GrantForAnother, GrantId, GrantUsed

NOW = 1_000
BOUND = ("run_id", "call_id", "principal", "tool", "argument_digest")


def test_it_lets_exactly_its_call_begin() -> None:
    grant = FleetPeers().grant(NOW)
    grant.require(now_ms=NOW, **{name: getattr(grant, name) for name in BOUND})
    assert GrantId.parse(grant.grant_id) == grant.grant_id


@pytest.mark.parametrize("name", BOUND)
def test_anything_changed_is_another_call(name: str) -> None:
    grant = FleetPeers().grant(NOW)
    call = {one: getattr(grant, one) for one in BOUND} | {name: "something else"}
    with pytest.raises(GrantForAnother, match=name):
        grant.require(now_ms=NOW, **call)


@pytest.mark.parametrize(
    ("changes", "now_ms", "refusal"),
    [({"used_by": "L"}, NOW, GrantUsed), ({}, NOW + 60_000, GrantExpired), ({"used_by": "L"}, NOW + 60_000, GrantUsed)],
)
def test_once_and_in_time(changes: dict[str, Any], now_ms: int, refusal: type[PalyraError]) -> None:
    grant = msgspec.structs.replace(FleetPeers().grant(NOW), **changes)
    with pytest.raises(refusal):
        grant.require(now_ms=now_ms, **{name: getattr(grant, name) for name in BOUND})
