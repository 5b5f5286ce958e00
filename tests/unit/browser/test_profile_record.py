"""Names, colours and snapshots as values."""

import msgspec
import pytest

from palyra.browser.domain.profile import (
    MAX_TABS,
    BadProfile,
    PersistedSessionSnapshot,
    TabState,
    check_colour,
    check_persistence,
    checked_name,
    decode_snapshot,
    encode_snapshot,
)


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\x1b[0m", "x" * 65, "\u202eabc"])
def test_bad_names(name: str) -> None:
    with pytest.raises(BadProfile):
        checked_name(name)


def test_good_names_and_colours() -> None:
    assert checked_name("Büro 2") == "Büro 2"
    assert check_colour("#00ff7f") == "#00ff7f"
    for colour in ("red", "#FFF", "#00ff7f;", "#00FF7F"):
        with pytest.raises(BadProfile):
            check_colour(colour)


def test_private_is_not_persistent() -> None:
    check_persistence(True, False)
    check_persistence(False, True)
    with pytest.raises(BadProfile):
        check_persistence(True, True)


def test_snapshots() -> None:
    snapshot = PersistedSessionSnapshot(
        archive=b"cookie", tabs=(TabState(url="https://a.test/", scroll_y=9),), permissions={"https://a.test": ("geo",)}
    )
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
    assert "cookie" not in repr(snapshot)
    with pytest.raises(msgspec.MsgspecError):
        decode_snapshot(b"\x80")
    with pytest.raises(BadProfile):
        encode_snapshot(PersistedSessionSnapshot(archive=b"", tabs=(TabState(url="x"),) * (MAX_TABS + 1)))
    with pytest.raises(BadProfile):
        encode_snapshot(PersistedSessionSnapshot(archive=b"", tabs=(TabState(url="x" * 5_000),)))
