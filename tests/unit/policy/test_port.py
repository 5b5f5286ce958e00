"""Both the engine and the holder are what consumers ask for."""

from collections.abc import Callable

from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Outcome, PolicyPort
from palyra.policy.live_policy import BundleHolder
from palyra.policy.request import PolicyRequest


def test_engine_and_holder_are_ports(engine_of: Callable[..., CedarEngine], ask: Callable[..., PolicyRequest]) -> None:
    engine = engine_of()
    ports: list[PolicyPort] = [engine, BundleHolder(engine)]
    for port in ports:
        assert port.decide(ask()).outcome is Outcome.ALLOW
        assert port.bundle_digest == engine.bundle_digest
