"""Limits on permits: the strictest wins, and a misspelt one is an error."""

import pytest

from palyra.policy.decision import Obligations, parse_obligations, strictest


def test_annotations_become_limits() -> None:
    stated = {
        "id": "x",
        "obligation_timeout_ms": "500",
        "obligation_max_output_bytes": "10",
        "obligation_tier": "c",
        "obligation_egress": "none",
        "obligation_read_only": "true",
    }
    obligations, faults = parse_obligations(stated, "permit")
    assert faults == ()
    assert obligations == Obligations(timeout_ms=500, max_output_bytes=10, tier="c", egress="none", read_only=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("timeout_ms", "0"),
        ("timeout_ms", "-1"),
        ("timeout_ms", "1e3"),
        ("timeout_ms", "١"),
        ("timeout_ms", ""),
        ("timeout_ms", "9" * 30),
        ("tier", "z"),
        ("egress", "all"),
        ("read_only", "yes"),
        ("timeout", "5"),
    ],
)
def test_a_bad_limit_is_a_fault_that_names_it(name: str, text: str) -> None:
    obligations, faults = parse_obligations({f"obligation_{name}": text}, "permit")
    assert obligations == Obligations()
    assert len(faults) == 1
    assert f"`obligation_{name}`" in faults[0]


def test_a_forbid_cannot_carry_limits() -> None:
    assert "forbid" in parse_obligations({"obligation_tier": "c"}, "forbid")[1][0]


def test_the_strictest_of_several_wins() -> None:
    first = Obligations(timeout_ms=100, tier="b", egress="none", read_only=False)
    second = Obligations(timeout_ms=50, max_output_bytes=7, tier="c", egress="strict", read_only=True)
    assert strictest([first, second]) == strictest([second, first]) == second
    assert strictest([first, Obligations()]) == first
    assert strictest([]) == Obligations()
