import inspect

from palyra.egress.domain import refusal
from palyra.egress.domain.refusal import AddressForbidden, EgressRefused, HostNotAllowed, Refusal
from palyra.egress.limits import MAX_SHOWN_CHARS
from palyra.errors import ExitCode

LEAVES = [
    each
    for each in vars(refusal).values()
    if inspect.isclass(each) and issubclass(each, EgressRefused) and each is not EgressRefused
]


def test_every_leaf_is_a_denial_with_a_code_of_its_own_and_a_hint() -> None:
    assert len({leaf.code for leaf in LEAVES}) == len(LEAVES) == 19
    for leaf in LEAVES:
        assert leaf.code.startswith("egress.") and leaf.hint and leaf.exit_code is ExitCode.DENIED


def test_a_refusal_keeps_what_the_journal_needs() -> None:
    error = HostNotAllowed("no", host="example.org", port=22)
    assert error.refusal() == Refusal(code="egress.host_not_allowed", host="example.org", port=22, detail="no")
    assert AddressForbidden("no").refusal() == Refusal(code="egress.address_forbidden", detail="no")


def test_a_strangers_text_is_cut() -> None:
    kept = HostNotAllowed("x" * 5_000, host="y" * 5_000).refusal()
    assert len(kept.detail) == len(kept.host) == MAX_SHOWN_CHARS + 1
