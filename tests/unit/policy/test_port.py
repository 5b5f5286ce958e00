"""The engine is what consumers ask for."""

from collections.abc import Callable

from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Outcome, PolicyPort
from palyra.policy.request import PolicyRequest


def test_the_engine_is_a_port(engine_of: Callable[..., CedarEngine], ask: Callable[..., PolicyRequest]) -> None:
    engine = engine_of()
    port: PolicyPort = engine
    assert port.decide(ask()).outcome is Outcome.ALLOW
    assert port.bundle_digest == engine.bundle.digest
