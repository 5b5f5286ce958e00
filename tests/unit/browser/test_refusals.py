"""What was refused is remembered within bounds, and a navigation finds its own refusal."""

import pytest

from palyra.browser.domain.page_address import MAX_REFUSALS, Refusals
from palyra.browser.domain.page_errors import SchemeRefused
from palyra.errors import Denied


def test_refusals_are_told_since_a_mark_with_address_and_code() -> None:
    refusals = Refusals(lambda text: text.replace("s3cret", "[redacted]"))
    refusals.add("http://u:p@evil.test/s3cret", SchemeRefused("no"))
    mark = refusals.total
    refusals.add("http://evil.test/2", SchemeRefused("no"), frame="F", document=True)
    assert next(each.line for each in refusals.since(0)) == "http://evil.test/[redacted] browser.scheme_refused"
    assert [each.url for each in refusals.since(mark)] == ["http://evil.test/2"]
    found = refusals.of_document("F", mark)
    assert isinstance(found, Denied)
    assert refusals.of_document("F", refusals.total) is None
    assert refusals.of_document("other", 0) is None


@pytest.mark.promise("P-floods")
def test_a_page_that_tries_without_end_fills_nothing() -> None:
    refusals = Refusals(str)
    for number in range(MAX_REFUSALS * 3):
        refusals.add(f"http://evil.test/{number}", SchemeRefused("no"))
    assert len(refusals.since(0)) == MAX_REFUSALS
    assert refusals.since(refusals.total - 1)[0].url == f"http://evil.test/{MAX_REFUSALS * 3 - 1}"
