"""A reload is whole or nothing."""

from collections.abc import Callable

import msgspec
import pytest

from palyra.policy import live_policy
from palyra.policy.bundle import Bundle
from palyra.policy.cedar import CedarEngine
from palyra.policy.decision import Outcome
from palyra.policy.live_policy import BundleHolder, PolicyFileRefused, Rejected, Swapped, Unchanged
from palyra.policy.request import PolicyRequest

Ask = Callable[..., PolicyRequest]
BundleOf = Callable[..., Bundle]
STOP = '@id("stop") forbid(principal, action, resource);'


@pytest.fixture
def holder(bundle_of: BundleOf) -> BundleHolder:
    return BundleHolder(CedarEngine(bundle_of()))


def test_a_good_bundle_is_swapped_in(holder: BundleHolder, bundle_of: BundleOf, ask: Ask) -> None:
    old = holder.current.bundle_digest
    outcome = holder.try_reload(lambda: bundle_of(STOP))
    assert outcome == Swapped(old=old, new=bundle_of(STOP).digest)
    assert holder.current.bundle_digest == bundle_of(STOP).digest
    assert holder.current.decide(ask()).outcome is Outcome.DENY


def test_an_engine_taken_before_stays_as_it_was(holder: BundleHolder, bundle_of: BundleOf, ask: Ask) -> None:
    taken = holder.current
    holder.try_reload(lambda: bundle_of(STOP))
    assert taken.decide(ask()).outcome is Outcome.ALLOW


def test_the_same_bundle_changes_nothing(holder: BundleHolder, bundle_of: BundleOf) -> None:
    engine = holder.current
    assert holder.try_reload(bundle_of) == Unchanged(digest=engine.bundle_digest)
    assert holder.current is engine


def test_a_bad_bundle_is_rejected_with_its_places(holder: BundleHolder, bundle_of: BundleOf) -> None:
    engine = holder.current
    outcome = holder.try_reload(lambda: bundle_of(STOP, "permit(oops);"))
    assert isinstance(outcome, Rejected)
    assert (outcome.digest, outcome.code) == (engine.bundle_digest, "policy.bundle_invalid")
    assert outcome.problems[0].file == "b.cedar"
    assert "b.cedar:1:8" in outcome.errors[0]
    assert holder.current is engine
    assert holder.last_rejection == outcome
    assert msgspec.to_builtins(outcome)["type"] == "Rejected"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PolicyFileRefused("no"), "policy.file_refused"),
        (OSError("gone"), "policy.load_failed"),
        (KeyError("x"), "policy.load_failed"),
    ],
)
def test_whatever_loading_raises_leaves_the_old_one(
    holder: BundleHolder, bundle_of: BundleOf, error: Exception, code: str
) -> None:
    def load() -> Bundle:
        raise error

    outcome = holder.try_reload(load)
    assert isinstance(outcome, Rejected)
    assert outcome.code == code
    assert isinstance(holder.try_reload(bundle_of), Unchanged)
    assert holder.last_rejection is None


def test_a_panic_of_the_engine_is_a_rejection(
    holder: BundleHolder, bundle_of: BundleOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    def panic(_: Bundle) -> None:
        raise PanicException("rust")

    monkeypatch.setattr(live_policy, "CedarEngine", panic)
    assert isinstance(holder.try_reload(lambda: bundle_of(STOP)), Rejected)


def test_an_interrupt_is_not_swallowed(holder: BundleHolder) -> None:
    def load() -> Bundle:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        holder.try_reload(load)
