from palyra.egress.client.http_client import Redactions
from palyra.egress.domain.injection import ResponseScan


def test_all_secrets_of_a_call_are_taken_out() -> None:
    redactions = Redactions()
    assert redactions.whole(b"first-secret") == b"first-secret" and not redactions.found_in("first-secret")
    redactions.add(ResponseScan((b"first-secret",)))
    redactions.add(ResponseScan((b"second-one",)))
    assert redactions.whole(b"a first-secret b second-one") == b"a " + b"*" * 12 + b" b " + b"*" * 10
    assert redactions.times == 2
    assert redactions.found_in("/x?first-secret") and not redactions.found_in("/x")


def test_the_name_of_a_header_is_looked_through_in_any_case() -> None:
    redactions = Redactions()
    assert redactions.name(b"X-Echo") == b"X-Echo"
    redactions.add(ResponseScan((b"First-Secret",)))
    assert redactions.name(b"X-first-SECRET-a") == b"X-" + b"*" * 12 + b"-a"
    assert redactions.times == 1
