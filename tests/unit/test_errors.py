"""Errors: one tree, stable codes, the same shape at every door."""

import json

import pytest

from palyra.errors import (
    Denied,
    ExitCode,
    Failed,
    InternalError,
    InvalidInput,
    LimitExceeded,
    NeedsApproval,
    PalyraError,
    RemoteError,
    Tampered,
    Unavailable,
    exit_code_of,
)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, type[PalyraError]]:
    copy = dict(PalyraError.registry)
    monkeypatch.setattr(PalyraError, "registry", copy)
    return copy


@pytest.mark.promise("P-clear-errors")
@pytest.mark.parametrize(
    ("branch", "exit_code", "status"),
    [
        (Failed, 1, 500),
        (InvalidInput, 2, 400),
        (Denied, 3, 403),
        (NeedsApproval, 4, 202),
        (LimitExceeded, 5, 429),
        (Unavailable, 6, 503),
        (Tampered, 1, 409),
    ],
)
def test_each_branch_has_the_documented_outcome(branch: type[PalyraError], exit_code: int, status: int) -> None:
    error = branch("x")
    assert (exit_code_of(error), error.http_status) == (exit_code, status)


def test_the_shown_form_has_code_message_hint_and_details_only_where_there_are_some() -> None:
    plain = InternalError("it broke")
    assert plain.as_dict() == {"code": "internal.bug", "message": "it broke", "hint": InternalError.hint}
    detailed = InternalError("it broke", call_id="C1")
    assert detailed.as_dict()["details"] == {"call_id": "C1"}
    json.dumps(detailed.as_dict())


def test_a_hint_given_at_the_raise_replaces_the_class_hint_for_that_error_only() -> None:
    assert InternalError("a", hint="try this").as_dict()["hint"] == "try this"
    assert InternalError("a").as_dict()["hint"] == InternalError.hint


def test_diagnostics_say_what_happened_then_the_code_then_the_hint() -> None:
    text = InternalError("it broke", hint="do that").diagnostics()
    assert text.splitlines() == ["it broke", "  code: internal.bug", "  hint: do that"]
    assert Failed("it broke").diagnostics() == "it broke\n  code: "


def test_a_leaf_is_registered_by_its_code(registry: dict[str, type[PalyraError]]) -> None:
    leaf = type("Leaf", (Denied,), {"code": "test.leaf"})
    assert registry["test.leaf"] is leaf
    assert type("Unnamed", (Denied,), {}) not in registry.values()


def test_two_leaves_with_one_code_are_refused_at_import(registry: dict[str, type[PalyraError]]) -> None:
    type("First", (Denied,), {"code": "test.twice"})
    with pytest.raises(TypeError, match=r"test\.twice.*First and Second"):
        type("Second", (Failed,), {"code": "test.twice"})


def test_a_subclass_does_not_inherit_a_registration(registry: dict[str, type[PalyraError]]) -> None:
    parent = type("Parent", (Denied,), {"code": "test.parent"})
    type("Child", (parent,), {})
    assert registry["test.parent"] is parent


def test_a_remote_error_keeps_its_own_code_hint_and_exit_code() -> None:
    error = RemoteError("no", remote_code="policy.denied", hint="ask", exit_code=3, http_status=403, call_id="C1")
    assert error.as_dict() == {
        "code": "policy.denied",
        "message": "no",
        "hint": "ask",
        "details": {"call_id": "C1"},
    }
    assert exit_code_of(error) is ExitCode.DENIED
    assert error.diagnostics().splitlines() == ["no", "  code: policy.denied", "  hint: ask"]


def test_a_remote_error_with_an_unknown_exit_code_is_refused() -> None:
    with pytest.raises(ValueError, match="99"):
        RemoteError("no", remote_code="x.y", exit_code=99)


def test_details_are_plain_json_values_also_where_they_name_an_id() -> None:
    import msgspec

    from palyra.errors import Failed
    from palyra.ids import CallId

    error = Failed("x", call=CallId.new(), many=[1])
    assert type(error.details["call"]) is str and error.details["many"] == [1]
    assert msgspec.json.decode(msgspec.json.encode(error.as_dict()))["details"] == error.details
