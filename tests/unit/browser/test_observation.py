"""What is asked of a page: unknown words are refused, and everything has its default."""

import msgspec
import pytest

from palyra.browser.domain.action import ObserveAsk, SnapshotForm


def test_the_tree_of_the_active_tab_is_what_is_asked_for_by_default() -> None:
    asked = msgspec.json.decode(b"{}", type=ObserveAsk)
    assert (asked.tab, asked.form, asked.max_bytes) == ("", SnapshotForm.TREE, 0)


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"html": true}', type=ObserveAsk)
