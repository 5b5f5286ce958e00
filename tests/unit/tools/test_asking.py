"""A call as a door hands it in becomes a decision, and a plan or the reason for none. The path: test_broker."""

from pathlib import Path

from fakes.house import open_house
from palyra.tools.asking import Asking


async def asked(tmp_path: Path, tool: str, arguments: dict[str, object], **more: object):
    """What the broker's own asking made of a call."""
    async with open_house(tmp_path) as house:
        seen = []
        asking = house.gateway.broker._asking
        assert isinstance(asking, Asking)

        class Noting:
            def decide(self, *given):
                seen.append(asking.decide(*given))
                return seen[-1]

        house.gateway.broker._asking = Noting()
        await house.call(tool, arguments, **more)
    return seen[0]


async def test_an_allowed_call_has_a_plan_in_its_callers_name(tmp_path):
    made, plan, denial = await asked(tmp_path, "echo", {"text": "x"}, timeout_ms=1234)
    assert denial is None and (plan.principal, plan.channel, plan.timeout_ms) == ("agent:bot", "cli", 1234)
    assert made.decision["outcome"] == "allow" and made.record.decision == made.decision
    assert {kind.value: amount for kind, amount in made.reserve.items()} == {"calls": 1, "wall_ms": 1234}


async def test_a_denied_one_has_none_and_says_what_would_lift_it(tmp_path):
    made, plan, denial = await asked(tmp_path, "echo", {"text": "x"}, channel="carrier-pigeon")
    assert plan is None and denial.code == "call.denied" and denial.hint
    assert made.decision["outcome"] == "deny"
