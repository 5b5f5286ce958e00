"""What may go live, and exactly where anything else is wrong."""

from collections.abc import Callable

import pytest

from palyra.policy import bundle_check
from palyra.policy.bundle import BadBundle, Bundle, Problem
from palyra.policy.bundle_check import check_bundle

BundleOf = Callable[..., Bundle]
HEAD = 'permit(principal, action == Action::"tool.execute", resource)'


@pytest.fixture
def problems_in(bundle_of: BundleOf) -> Callable[..., tuple[Problem, ...]]:
    def check(*texts: str) -> tuple[Problem, ...]:
        with pytest.raises(BadBundle) as caught:
            check_bundle(bundle_of(*texts))
        return caught.value.problems

    return check


ProblemsIn = Callable[..., tuple[Problem, ...]]


def test_the_defaults_are_valid_and_named(bundle_of: BundleOf) -> None:
    ids = [policy.id for policy in check_bundle(bundle_of()).policies]
    assert ids == [
        "baseline.sensitive-needs-approval",
        "baseline.allowed-tools",
        "baseline.status",
        "baseline.operators",
        "baseline.allowed-hosts",
        "baseline.browser-hosts",
        "baseline.browser-uploads-with-approval",
        "baseline.browser-operators",
        "baseline.secrets-of-others",
        "baseline.own-secrets",
        "baseline.shared-secrets-with-approval",
        "baseline.vault-operators",
        "baseline.reveal-is-for-operators",
        "baseline.skill-operators",
        "baseline.identity-operators",
        "baseline.approved-skills",
        "baseline.skills-not-in-use",
        "baseline.paired-devices",
        "baseline.worker-leases",
        "baseline.device-operators",
        "baseline.pairing-operators",
        "baseline.console-operators",
        "baseline.console-viewers",
    ]


def test_policies_keep_their_place_and_text(bundle_of: BundleOf) -> None:
    text = f'// first\n\n  @id("mine")\n  {HEAD};\n'
    policy = check_bundle(bundle_of(text)).policies[-1]
    assert str(policy.location) == "a.cedar:3:3"
    assert policy.text == f'@id("mine")\n  {HEAD};'


@pytest.mark.parametrize(
    ("text", "line", "token", "message"),
    [
        ('@id("x")\npermit(principal, action resource);', 2, "resource", "unexpected token"),
        (f'@id("x") {HEAD} when {{ context.approved == }};', 1, "}", "unexpected token"),
        (f'@id("x") {HEAD}\nwen {{ true }};', 2, "wen", "wen"),
        (f'@id("x") {HEAD} when {{ foo }};', 1, "foo", "invalid variable"),
        (f'@id("x") {HEAD} when {{ "\\q" == "" }};', 1, "\\q", "not a valid escape"),
        (f"@id(\"x\") {HEAD} when {{ context.run == 'y' }};", 1, "'", "invalid token"),
        (f'@id("x") {HEAD} when {{\n  context.run == "y }};', 2, '"y', "invalid token"),
        (f'@id("x") {HEAD}', 1, ")", "not finished"),
        (f'@id("x") {HEAD}\n@id("y") {HEAD};', 2, "@", "unexpected token"),
        ('@id("x") permit(principal, action == Action::"tool.exec", resource);', 1, "Action", "unrecognized action"),
        ('@id("x") permit(principal == Bot::"b", action, resource);', 1, "Bot", "unrecognized entity type"),
        (f'@id("x") {HEAD}\nwhen {{ resource.sensitve }};', 2, "sensitve", "did you mean `sensitive`?"),
        (f'@id("x") {HEAD} when {{ context.session == "a" }};', 1, "session", "optional attribute"),
        (f'@id("x") {HEAD} when {{ resource has danger }};', 1, "danger", "declared nowhere"),
        (f'@id("x") {HEAD} when {{ context.run == 5 }};', 1, "@id", "not compatible"),
        ('@id("x") permit(principal is Group, action, resource);', 1, "permit", "can never match"),
        ('@id("x") permit(principal in ToolSet::"x", action, resource);', 1, "permit", "can never match"),
        ('@id("x") permit(principal == ?principal, action, resource);', 1, "?", "templates"),
        (f"\n\n{HEAD};", 3, "permit", "has no name"),
        (f'@id("") {HEAD};', 1, "@id", "has no name"),
        (f'@id("a b") {HEAD};', 1, "@id", "letters, digits"),
        (f'@id("x") @obligation_timeout("5") {HEAD};', 1, "obligation_timeout", "not an obligation"),
        (f'@id("x") {HEAD} when {{ {"(" * 90}true{")" * 90} }};', 1, "(", "nested deeper"),
    ],
)
def test_each_error_is_shown_where_it_is(
    problems_in: ProblemsIn, text: str, line: int, token: str, message: str
) -> None:
    (problem,) = problems_in(text)
    assert message in problem.message
    assert (problem.file, problem.line) == ("a.cedar", line)
    assert problem.source[problem.column - 1 :].startswith(token)
    assert problem.source == text.split("\n")[line - 1]


def test_ids_are_unique_over_all_files(problems_in: ProblemsIn) -> None:
    (problem,) = problems_in(f'@id("x") {HEAD};', f'// second\n@id("x") {HEAD};')
    assert problem.file == "b.cedar"
    assert "already used at a.cedar:1:1" in problem.message
    (problem,) = problems_in(f'@id("baseline.status") {HEAD};')
    assert "defaults/baseline.cedar" in problem.message


def test_all_problems_are_told_at_once(problems_in: ProblemsIn) -> None:
    found = problems_in(f'{HEAD};\n@id("x") permit(oops);', "permit")
    assert [(problem.file, problem.line) for problem in found] == [("a.cedar", 1), ("a.cedar", 2), ("b.cedar", 1)]


def test_problems_are_bounded(problems_in: ProblemsIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_check, "MAX_PROBLEMS", 3)
    assert len(problems_in(f"{HEAD};" * 10)) == 3


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    ("limit", "value"),
    [("MAX_POLICY_FILES", 1), ("MAX_BUNDLE_BYTES", 10), ("MAX_POLICY_FILE_BYTES", 10), ("MAX_POLICIES", 3)],
)
def test_size_is_limited(problems_in: ProblemsIn, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(bundle_check, limit, value)
    problem = problems_in(f'@id("x") {HEAD};')[0]
    assert str(value) in problem.message


def test_a_broken_schema_is_shown_too(bundle_of: BundleOf) -> None:
    schema = "entity User;\nentity Tool { tier: Strin };\n"
    with pytest.raises(BadBundle) as caught:
        check_bundle(Bundle(schema=schema, files=()))
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.column) == ("palyra.cedarschema", 2, 21)


@pytest.mark.promise("P-limits")
def test_a_long_chain_of_conditions_is_refused_with_advice(problems_in: ProblemsIn) -> None:
    for conditions in (410, 700):
        chain = " || ".join(["context.approved"] * conditions)
        (problem,) = problems_in(f'@id("x") {HEAD} when {{ {chain} }};')
        assert "contains" in problem.message


def test_a_chain_of_conditions_within_bounds_is_taken_however_deep_its_reader_is(bundle_of: BundleOf) -> None:
    chain = " || ".join(["context.approved"] * 380)

    def read(depth: int) -> None:
        check_bundle(bundle_of(f'@id("x") {HEAD} when {{ {chain} }};')) if depth == 0 else read(depth - 1)

    read(100)


def test_a_file_that_cedar_counts_otherwise_is_refused(
    problems_in: ProblemsIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bundle_check.statements
    monkeypatch.setattr(bundle_check, "statements", lambda text: list(real(text))[:-1])
    assert any("another number of policies" in problem.message for problem in problems_in(f'@id("x") {HEAD};'))
