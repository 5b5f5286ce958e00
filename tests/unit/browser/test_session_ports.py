"""What joins a session to its surroundings is what the daemon has."""

from palyra.browser.session_ports import PagesNeeds, Uncounted


def test_nobody_need_count() -> None:
    metrics = Uncounted()
    metrics.opened()
    metrics.acted("click", "")


def test_pages_get_everything_they_are_made_from() -> None:
    assert set(PagesNeeds.__struct_fields__) == {
        *("process", "judge", "meter", "downloads", "redact", "allow_evaluate"),
    }
