"""The bounds fit each other."""

from palyra.browser.domain import limits
from palyra.browser.domain.budget import SessionBudget


def test_what_is_read_is_more_than_what_is_shown() -> None:
    assert limits.MAX_SHOWN_NAME < limits.MAX_SHOWN_TEXT < 1000
    assert SessionBudget().max_observe_snapshot_bytes >= limits.DEFAULT_TREE_BYTES
    assert limits.MAX_REFS > limits.MAX_ROWS
