from palyra.client.protocol import convert_view
from palyra.client.views import ApprovalView, CallView, NewToken, TokenView
from palyra.secret import Secret


def test_a_call_needs_only_what_every_call_has() -> None:
    data = {"call_id": "c", "run_id": "r", "tool": "t", "principal": "agent:a", "status": "running"}
    view = convert_view(data, CallView)
    assert (view.decision, view.result, view.document) == (None, None, data)


def test_an_approval_shows_what_the_server_may_leave_away_as_empty() -> None:
    view = convert_view({"id": "a", "state": "pending"}, ApprovalView)
    assert (view.policies, view.arguments, view.meaning) == ((), None, None)


def test_a_new_token_is_not_printed() -> None:
    made = NewToken(view=convert_view({"token_id": "t"}, TokenView), token=Secret("sesame"))
    assert "sesame" not in repr(made)
