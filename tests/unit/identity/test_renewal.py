from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from palyra.identity.device import RenewalVerdict, issued_ms, judge_renewal, renewal_due_ms
from palyra.identity.limits import CLOCK_SKEW_MS


def test_a_certificate_is_due_at_two_thirds_of_its_life() -> None:
    assert renewal_due_ms(1_000_000 - CLOCK_SKEW_MS, 1_090_000) == 1_060_000
    assert issued_ms(1_000_000 - CLOCK_SKEW_MS) == 1_000_000


@given(st.integers(0, 2**42), st.integers(1, 10**10))
def test_the_skew_makes_no_certificate_due_at_once(made: int, life: int) -> None:
    due = renewal_due_ms(made - CLOCK_SKEW_MS, made + life)
    assert made <= due <= made + life and due - made == life * 2 // 3


def test_every_case_has_its_verdict() -> None:
    newest = 5
    for presented, used, same_key in product(range(8), (False, True), (False, True)):
        verdict = judge_renewal(
            presented=presented,
            newest=newest,
            newest_used=used,
            requested_key="k",
            newest_key="k" if same_key else "other",
        )
        if presented == newest:
            assert verdict is RenewalVerdict.NEXT
        elif presented == newest - 1 and same_key and not used:
            assert verdict is RenewalVerdict.AGAIN
        else:
            assert verdict is RenewalVerdict.STALE
