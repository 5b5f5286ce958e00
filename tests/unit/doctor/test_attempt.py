from palyra.doctor.attacks.attempt import AttackClass, Attempt, fill_names
from palyra.sandbox.domain.profile import Layer, SandboxTier


def test_a_string_that_is_one_name_becomes_the_value_itself() -> None:
    names = {"port": 80, "token": "abc", "path": "/x"}
    assert fill_names("{port}", names) == 80
    assert fill_names({"a": ["{path}/y", "{port}", 3, None], "b": True}, names) == {
        "a": ["/x/y", 80, 3, None],
        "b": True,
    }


def test_braces_that_name_nothing_stay() -> None:
    assert fill_names("BEGIN { print('{token}') } {unknown}", {"token": "abc"}) == "BEGIN { print('abc') } {unknown}"


def test_a_tier_without_a_promise_differs_from_one_where_it_is_not_tried() -> None:
    attempt = Attempt(id="a.b", kind=AttackClass.FILES, title="t", c=(Layer.SECCOMP,), b=())
    assert attempt.promise(SandboxTier.C) == (Layer.SECCOMP,)
    assert attempt.promise(SandboxTier.B) == ()
    assert Attempt(id="a.b", kind=AttackClass.FILES, title="t").promise(SandboxTier.C) is None
