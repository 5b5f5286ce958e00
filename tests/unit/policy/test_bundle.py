"""A bundle's digest changes with everything a decision depends on, and with nothing else."""

import hashlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.policy.bundle import BadBundle, Bundle, Problem, Scope
from palyra.policy.request import EntityDirectory, EntityRef

BASE = Bundle(schema="s", files=(("a", "x"), ("b", "y")), directory=EntityDirectory.from_lists(tools=("t", "u")))


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(BASE, schema="s2"),
        msgspec.structs.replace(BASE, files=(("a", "x"),)),
        msgspec.structs.replace(BASE, files=(("b", "y"), ("a", "x"))),
        msgspec.structs.replace(BASE, files=(("a", "xb"), ("", "y"))),
        msgspec.structs.replace(BASE, files=(("ax", ""), ("b", "y"))),
        msgspec.structs.replace(BASE, directory=EntityDirectory.from_lists(tools=("tu",))),
        msgspec.structs.replace(BASE, directory=EntityDirectory.from_lists(preapproved=("t", "u"))),
        msgspec.structs.replace(BASE, directory=EntityDirectory.from_lists(tools=("t", "u"), channels=("c",))),
    ],
)
def test_every_part_counts(other: Bundle) -> None:
    assert other.digest != BASE.digest


def test_the_digest_is_stable() -> None:
    assert BASE.digest == msgspec.structs.replace(BASE).digest
    parts = (b"palyra.policy.bundle.v1", b"s", bytes(8), bytes(8), bytes(8), bytes(8))
    encoded = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert Bundle(schema="s", files=()).digest == hashlib.sha256(encoded).hexdigest()


def test_the_order_of_sets_does_not_count() -> None:
    one = EntityDirectory(groups={"a": ("1",), "b": ("2",)})
    two = EntityDirectory(groups={"b": ("2",), "a": ("1",)})
    assert msgspec.structs.replace(BASE, directory=one).digest == msgspec.structs.replace(BASE, directory=two).digest


@given(
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3),
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3),
)
def test_different_files_never_share_a_digest(left: list[tuple[str, str]], right: list[tuple[str, str]]) -> None:
    digests = [Bundle(schema="s", files=tuple(files)).digest for files in (left, right)]
    assert (digests[0] == digests[1]) == (left == right)


def test_only_an_exact_head_is_exact() -> None:
    exact = {"op": "==", "entity": {"type": "Agent", "id": "a"}}
    action = {"op": "==", "entity": {"type": "Action", "id": "go"}}
    scope = Scope.from_cedar_json({"principal": exact, "action": action, "resource": {"op": "All"}})
    assert scope == Scope(principal=EntityRef("Agent", "a"), action="go")
    for constraint in (
        {"op": "in", "entity": exact["entity"]},
        {"op": "is", "entity_type": "Agent"},
        {"op": "==", "slot": "?principal"},
    ):
        assert (
            Scope.from_cedar_json({"principal": constraint, "action": {"op": "All"}, "resource": constraint}) == Scope()
        )


def test_a_bad_bundle_shows_every_problem_with_its_place() -> None:
    problems = tuple(Problem(file="x.cedar", line=n, column=2, message=f"m{n}", source="abc") for n in (1, 2))
    error = BadBundle(problems)
    assert error.exit_code == 2
    assert "2 problems" in error.message
    assert error.diagnostics().count("^") == 2
    assert error.as_dict()["details"]["problems"][1]["line"] == 2


def test_sources_are_the_files_in_order(bundle_of: Callable[..., Bundle]) -> None:
    assert [source.name for source in bundle_of("", "").sources()] == ["defaults/baseline.cedar", "a.cedar", "b.cedar"]
