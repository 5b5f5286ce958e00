"""Both the engine and the holder are what consumers ask for."""

from collections.abc import Callable

from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Outcome
from palyra.policy.port import PolicyPort
from palyra.policy.reload import BundleHolder
from palyra.policy.request import PolicyRequest


def test_engine_and_holder_are_ports(engine_of: Callable[..., CedarEngine], ask: Callable[..., PolicyRequest]) -> None:
    engine = engine_of()
    ports: list[PolicyPort] = [engine, BundleHolder(engine)]
    for port in ports:
        assert port.decide(ask()).outcome is Outcome.ALLOW
        assert port.bundle_digest == engine.bundle_digest


def test_an_engine_tells_what_its_policies_look_at(
    engine_of: Callable[..., CedarEngine], ask: Callable[..., PolicyRequest]
) -> None:
    engine = engine_of()
    looks = BundleHolder(engine).looks_at(ask())
    assert looks.bundle_digest == engine.bundle_digest and looks.attributes is not None
    assert {"approved", "channel"} <= looks.attributes and not {"run", "argument_bytes"} & looks.attributes
    execute = 'forbid (principal, action == Action::"tool.execute", resource)'
    about_length = f'@id("x") {execute} when {{ context.argument_bytes > 5 }};'
    assert "argument_bytes" in (engine_of(about_length).looks_at(ask()).attributes or ())
    # What is long is part of every question.
    assert "run" in (engine.looks_at(ask(run="r" * 300)).attributes or ())


def test_an_engine_that_looks_at_every_policy_promises_nothing(
    bundle_of: Callable[..., Bundle], ask: Callable[..., PolicyRequest]
) -> None:
    assert CedarEngine(bundle_of(), sliced=False).looks_at(ask()).attributes is None
