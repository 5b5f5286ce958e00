"""How far a document has come, as transcripts of events."""

from palyra.browser.domain.action import LoadState
from palyra.browser.domain.document_state import PageLoad


def test_a_document_goes_through_its_states() -> None:
    load = PageLoad()
    load.begin("L0")
    assert load.has_reached(LoadState.IDLE) and not load.busy
    load.request()
    assert load.moving
    load.start("L1", "differentDocument")
    load.record_answer("L1", 404)
    assert load.status == 0 and load.has_reached(LoadState.IDLE)
    load.commit("L1", restored=False)
    assert (load.status, load.moving, load.busy) == (404, False, True)
    assert not load.has_reached(LoadState.CONTENT)
    load.reach("L0", "load")
    load.reach("L1", "DOMContentLoaded")
    load.reach("L1", "firstPaint")
    assert load.has_reached(LoadState.CONTENT) and not load.has_reached(LoadState.LOADED)
    load.reach("L1", "networkIdle")
    assert load.has_reached(LoadState.LOADED)


def test_a_navigation_that_brought_no_document_ends() -> None:
    load = PageLoad()
    load.begin("L0")
    load.start("L1", "differentDocument")
    assert load.moving
    load.stop()
    assert (load.moving, load.ends, load.loader, load.commits) == (False, 1, "L0", 0)
    load.stop()
    assert load.ends == 1


def test_moving_within_a_document_is_no_navigation() -> None:
    load = PageLoad()
    load.begin("L0")
    load.request()
    load.start("L0", "sameDocument")
    load.move_within()
    assert (load.moving, load.within, load.commits) == (False, 1, 0)
    load.start("L0", "historySameDocument")
    assert not load.moving


def test_a_document_that_was_kept_whole_is_loaded_when_it_comes_back() -> None:
    load = PageLoad()
    load.start("L2", "historyDifferentDocument")
    load.commit("L1", restored=True)
    assert load.has_reached(LoadState.IDLE) and not load.moving


def test_states_that_come_before_the_commit_count() -> None:
    load = PageLoad()
    load.start("L1", "differentDocument")
    load.reach("L1", "DOMContentLoaded")
    load.commit("L1", restored=False)
    assert load.has_reached(LoadState.CONTENT)
