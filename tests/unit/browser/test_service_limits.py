"""The bounds fit together: what one may send fits into a message, and clients wait longer than the daemon works."""

import pytest

from palyra.browser.domain import limits
from palyra.browser.domain.budget import SessionBudget
from palyra.browser.profiles.storage_state import MAX_DOCUMENT_BYTES


@pytest.mark.promise("P-limits")
def test_the_largest_things_fit_into_a_message() -> None:
    ceiling = SessionBudget()
    for size in (limits.MAX_UPLOAD_BYTES, MAX_DOCUMENT_BYTES, ceiling.max_screenshot_bytes, ceiling.max_response_bytes):
        assert size < limits.MAX_MESSAGE_BYTES


def test_a_client_waits_longer_than_an_action_may_take() -> None:
    ceiling = SessionBudget()
    assert ceiling.max_navigation_timeout_ms / 1000 < limits.ACTION_SECONDS
    assert ceiling.max_action_timeout_ms / 1000 < limits.ACTION_SECONDS
