"""Values of the daemon's socket: an error in a report is an error, and nothing of a cookie is its value."""

from palyra.browser.domain.session_api import ActReport, CookieView, NoSuchSession, SessionState


def test_a_session_that_is_not_there_is_not_found() -> None:
    error = NoSuchSession("there is no session 'x'")
    assert (error.code, error.http_status) == ("browser.unknown_session", 404)


def test_a_cookie_is_shown_without_a_value() -> None:
    assert not {name for name in CookieView.__struct_fields__ if "value" in name}


def test_states_and_reports_have_plain_defaults() -> None:
    assert [str(each) for each in SessionState] == ["open", "taken_over", "closing"]
    assert ActReport() == ActReport(outcomes=(), problem=None)
