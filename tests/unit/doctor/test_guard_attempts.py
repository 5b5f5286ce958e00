from palyra.doctor.attacks.catalogue import GUARD_ATTEMPTS


def test_each_would_show_the_secret_or_is_refused_for_a_named_reason() -> None:
    commands = [each for each in GUARD_ATTEMPTS if each.command]
    assert len(commands) >= 20
    reasons = {code for each in commands for code in each.refused_by}
    assert reasons == {"sandbox.interpreter_denied", "sandbox.workspace_scope_denied", "sandbox.egress_denied"}


def test_variables_are_set_by_the_caller_and_not_by_the_profile() -> None:
    names = {name for each in GUARD_ATTEMPTS for name, _ in each.env}
    assert {"LD_PRELOAD", "LD_AUDIT", "HOME"} <= names
