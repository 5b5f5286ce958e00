import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.nodes.domain import rate_limits as throttle
from palyra.nodes.domain.rate_limits import Bucket, GuessThrottle, TooManyAttempts, network_of


def admitted(subject, address, now, times):
    count = 0
    for _ in range(times):
        try:
            subject.admit(address, now)
        except TooManyAttempts:
            continue
        count += 1
    return count


def test_an_address_has_a_burst_and_then_a_rate():
    subject = GuessThrottle()
    assert admitted(subject, "192.0.2.1", 0.0, 100) == throttle.ATTEMPT_BURST
    with pytest.raises(TooManyAttempts) as refused:
        subject.admit("192.0.2.1", 0.0)
    assert refused.value.details["retry_after_ms"] > 0
    assert admitted(subject, "192.0.2.1", 1 / throttle.ATTEMPTS_PER_SECOND, 10) == 1


def test_addresses_do_not_use_each_others_but_share_a_total():
    subject = GuessThrottle()
    counts = [admitted(subject, f"192.0.2.{host}", 0.0, 20) for host in range(1, 20)]
    assert counts[0] == throttle.ATTEMPT_BURST
    assert sum(counts) == throttle.TOTAL_BURST


def test_wrong_codes_close_the_door_to_an_address_for_a_while():
    subject = GuessThrottle()
    for _ in range(throttle.MAX_FAILURES_PER_ADDRESS):
        subject.failed("192.0.2.1", 0.0)
    later = throttle.FAILURE_SECONDS - 1
    for question in (subject.admit, subject.require_few_failures):
        with pytest.raises(TooManyAttempts):
            question("192.0.2.1", later)
    subject.admit("192.0.2.2", later)
    subject.admit("192.0.2.1", throttle.FAILURE_SECONDS)


def test_one_ipv6_network_is_one_address():
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9")
    assert network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("not an address") == "unknown"


def test_what_is_remembered_is_bounded():
    subject = GuessThrottle()
    for number in range(throttle.MAX_ADDRESSES + 100):
        subject.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(subject._addresses) == throttle.MAX_ADDRESSES


def test_who_fails_without_end_is_not_remembered_without_end():
    subject = GuessThrottle()
    for number in range(10_000):
        subject.failed("192.0.2.1", number / 1_000)
    (known,) = subject._addresses.values()
    assert len(known.failures) == throttle.MAX_FAILURES_PER_ADDRESS


@given(st.lists(st.floats(min_value=0, max_value=50), max_size=60))
def test_no_order_of_times_gives_more_than_burst_and_rate(waits):
    bucket, now, taken = Bucket(), 0.0, 0
    for wait in waits:
        now += wait
        taken += bucket.take(now, burst=3.0, rate=0.5) == 0.0
    assert taken <= 3.0 + now * 0.5 + 1e-6


def test_a_clock_that_goes_back_gives_nothing():
    bucket = Bucket()
    assert [bucket.take(100.0, burst=1.0, rate=1.0), bucket.take(0.0, burst=1.0, rate=1.0) > 0] == [0.0, True]
