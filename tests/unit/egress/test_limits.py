"""The judge's bounds fit each other."""

from palyra.egress import limits
from palyra.limits import DEFAULT_RUN_EGRESS_BYTES


def test_defaults_lie_within_what_may_be_set() -> None:
    assert limits.DEFAULT_MAX_TUNNELS <= limits.MAX_TUNNELS
    assert limits.DEFAULT_IDLE_SECONDS <= limits.MAX_IDLE_SECONDS
    assert limits.DEFAULT_MAX_CALL_BYTES <= DEFAULT_RUN_EGRESS_BYTES


def test_a_static_name_never_has_more_addresses_than_are_looked_at() -> None:
    assert limits.MAX_STATIC_ADDRESSES <= limits.MAX_ANSWERS


def test_the_longest_host_fits_a_refusal_nearly_whole_and_a_url_easily() -> None:
    assert limits.MAX_LABEL_CHARS < limits.MAX_SHOWN_CHARS < limits.MAX_HOST_CHARS < limits.MAX_URL_CHARS
