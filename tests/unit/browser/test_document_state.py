"""The frames of a tab from Chromium's events, as transcripts."""

from typing import Any

import pytest

from palyra.browser.domain.document_state import MAX_FRAMES, FrameTable


def frame(id_: str, loader: str, url: str = "http://a.test/", **more: Any) -> dict[str, Any]:
    return {"id": id_, "loaderId": loader, "url": url, **more}


def ids(table: FrameTable) -> list[str]:
    return [each.frame_id for each in table.views()]


def test_what_is_there_at_first_is_taken_from_the_tree() -> None:
    table = FrameTable("M", "S")
    child = {"frame": frame("C", "L2", parentId="M"), "childFrames": [{"frame": frame("D", "L3", parentId="C")}]}
    table.seed({"frame": frame("M", "L1"), "childFrames": [child]}, "S")
    assert ids(table) == ["M", "C", "D"]
    assert table.main.loader_id == "L1"


def test_a_tree_that_came_late_does_not_undo_what_events_told() -> None:
    table = FrameTable("M", "S")
    table.navigate(frame("M", "L2", "http://new.test/"), "S")
    table.seed({"frame": frame("M", "L1", "about:blank"), "childFrames": [{"frame": frame("C", "L")}]}, "S")
    assert (table.main.loader_id, table.main.url, ids(table)) == ("L2", "http://new.test/", ["M"])


def test_a_frame_of_another_site_moves_to_a_session_of_its_own() -> None:
    table = FrameTable("M", "S")
    table.attach("C", "M", "S")
    table.adopt("C", "M", "S2")
    table.navigate(frame("C", "L9", "http://other.test/"), "S2")
    table.detach("C", "swap")
    (_, child) = table.views()
    assert (child.session_id, child.loader_id, child.parent_id) == ("S2", "L9", "M")
    table.remove_session("S2")
    assert ids(table) == ["M"]


def test_a_new_document_has_none_of_the_old_ones_frames() -> None:
    table = FrameTable("M", "S")
    for id_, parent in (("C", "M"), ("D", "C"), ("E", "D")):
        table.attach(id_, parent, "S")
    assert ids(table) == ["M", "C", "D", "E"]
    table.navigate(frame("C", "L2", urlFragment="#top"), "S")
    assert ids(table) == ["M", "C"]
    child = table.get("C")
    assert child is not None and child.url == "http://a.test/#top"
    table.detach("C", "remove")
    table.detach("M", "remove")
    assert ids(table) == ["M"]


def test_an_address_changes_within_a_document_and_the_loader_does_not() -> None:
    table = FrameTable("M", "S")
    table.navigate(frame("M", "L1"), "S")
    table.move_within("M", "http://a.test/#2")
    table.move_within("unknown", "http://a.test/")
    assert (table.main.url, table.main.loader_id) == ("http://a.test/#2", "L1")


@pytest.mark.promise("P-floods")
def test_a_page_cannot_fill_the_table() -> None:
    table = FrameTable("M", "S")
    for number in range(MAX_FRAMES + 10):
        table.attach(f"f{number}", "M", "S")
    assert table.navigate(frame("more", "L"), "S") is None
    table.adopt("more", "M", "S2")
    assert len(ids(table)) == MAX_FRAMES


def test_frames_that_are_each_others_parents_are_not_shown() -> None:
    table = FrameTable("M", "S")
    table.attach("A", "B", "S")
    table.attach("B", "A", "S")
    assert ids(table) == ["M"]
