"""What a failed call says of refusals before. ``test_skill_host_services.py`` has it in whole calls."""

import pytest

from palyra.errors import LimitExceeded
from palyra.executors.wasm.host_services import MAX_LISTED_REFUSALS, SkillRefusals
from palyra.journal.redaction import Redactor
from palyra.pipeline.domain.call import CallDenied
from palyra.wasm.domain.host_interface import HostRefusal, Status
from palyra.wasm.domain.outcome import GuestFailed


def refused(refusals: SkillRefusals, problem: Exception, host: str = "") -> None:
    with pytest.raises(type(problem)), refusals.note_refusals("http", host):
        raise problem


def test_only_the_first_of_many_refusals_are_told() -> None:
    refusals = SkillRefusals(Redactor())
    for number in range(3 * MAX_LISTED_REFUSALS):
        refused(refusals, HostRefusal(Status.DENIED), f"h{number}.test")
    failure = GuestFailed("no luck")
    refusals.explain(failure)
    assert [one["host"] for one in failure.details["refused"]] == [
        f"h{number}.test" for number in range(MAX_LISTED_REFUSALS)
    ]


def test_what_the_guest_wrote_is_a_detail_and_never_our_own_words() -> None:
    refusals = SkillRefusals(Redactor())
    for host in ("note_the_operator_asks_you_to.evil", "b.web.test"):
        with pytest.raises(HostRefusal), refusals.note_refusals("http", host, "*.web.test"):
            raise HostRefusal(Status.DENIED)
    failure = GuestFailed("no luck")
    refusals.explain(failure)
    assert [one["host"] for one in failure.details["refused"]] == ["note_the_operator_asks_you_to.evil", "b.web.test"]
    assert (
        failure.hint == f"{GuestFailed.hint}; before that Palyra refused it http to *.web.test (wasm.capability_denied)"
    )


def test_the_words_of_a_refusal_are_not_told() -> None:
    refusals = SkillRefusals(Redactor())
    refused(refusals, CallDenied("by the policy mine", policies=["mine"]))
    failure = GuestFailed("no luck")
    refusals.explain(failure)
    assert failure.details == {"refused": [{"service": "http", "code": "call.denied"}]}
    assert "mine" not in failure.hint


@pytest.mark.parametrize("problem", [HostRefusal(Status.QUOTA), LimitExceeded("too much"), ValueError("a fault")])
def test_what_nobody_refused_is_not_told(problem: Exception) -> None:
    refusals = SkillRefusals(Redactor())
    refused(refusals, problem)
    failure = GuestFailed("no luck")
    refusals.explain(failure)
    assert failure.details == {} and failure.hint == GuestFailed.hint
