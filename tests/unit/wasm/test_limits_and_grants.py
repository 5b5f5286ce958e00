import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.wasm.domain.grants import HANDLE_BASE, BadGrant, Capability, CapabilityGrantSet
from palyra.wasm.domain.limits import MAX_GRANTS_PER_KIND, RuntimeLimits, share


def test_the_defaults_are_the_designs():
    limits = RuntimeLimits()
    assert (limits.fuel_budget, limits.max_memory_bytes) == (10_000_000, 64 * 1024 * 1024)
    assert (limits.max_table_elements, limits.max_instances) == (100_000, 256)


def test_a_call_gets_the_smaller_of_each_limit():
    wanted = RuntimeLimits(fuel_budget=10**12, max_memory_bytes=1, max_output_bytes=-5)
    got = wanted.within(RuntimeLimits())
    assert (got.fuel_budget, got.max_memory_bytes, got.max_output_bytes) == (10_000_000, 1, 0)


@given(st.integers(0, 10_000), st.lists(st.one_of(st.none(), st.integers(0, 20_000)), max_size=8))
def test_shares_never_exceed_the_total_and_waste_little(total, declared):
    each = share(total, tuple(declared))
    reached = sum(min(each, total if most is None else most) for most in declared)
    assert reached <= total
    if declared and any(most is None or most > each for most in declared):
        assert reached + len(declared) > total


def test_handles_are_the_base_and_the_place_in_the_sorted_list():
    grants = CapabilityGrantSet(http_hosts=("b", "a", "b"), secret_keys=("s",), channels=("c",), storage_prefixes=("",))
    assert grants.http_hosts == ("a", "b")
    assert [(grant.handle, grant.name) for grant in grants.handles(Capability.HTTP)] == [(10_000, "a"), (10_001, "b")]
    assert grants.resolve(Capability.HTTP, 10_001).name == "b"
    assert grants.counts() == (2, 1, 1, 1)
    assert list(HANDLE_BASE.values()) == [10_000, 20_000, 30_000, 40_000]


@pytest.mark.parametrize("handle", [-1, 0, 9_999, 10_002, 20_000, 2**31, -(2**31)])
def test_a_number_that_is_no_handle_of_this_kind_resolves_to_nothing(handle):
    grants = CapabilityGrantSet(http_hosts=("a", "b"), secret_keys=("s",))
    assert grants.resolve(Capability.HTTP, handle) is None


def test_grants_that_mean_nothing_are_refused():
    with pytest.raises(BadGrant, match="empty"):
        CapabilityGrantSet(http_hosts=("",))
    with pytest.raises(BadGrant, match="not granted"):
        CapabilityGrantSet(secret_keys=("a",), revealable_secrets=("b",))
    with pytest.raises(BadGrant, match="entries"):
        CapabilityGrantSet(channels=tuple(f"c{number}" for number in range(MAX_GRANTS_PER_KIND + 1)))
