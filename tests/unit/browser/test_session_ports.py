"""What joins a session to its surroundings is what the daemon has."""

from palyra.browser.service.session import PagesNeeds


def test_pages_get_everything_they_are_made_from() -> None:
    assert set(PagesNeeds.__struct_fields__) == {
        *("process", "judge", "meter", "downloads", "redact", "allow_evaluate"),
    }
