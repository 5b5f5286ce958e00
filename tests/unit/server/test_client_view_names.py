import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.ids import InvalidToolName
from palyra.server.mcp.client_view import from_client, to_client

NAMES = st.from_regex(r"\A[a-z][a-z0-9_-]{0,8}(\.[a-z0-9][a-z0-9_-]{0,8}){0,3}\Z")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("fs.read", "fs_read"),
        ("echo", "echo"),
        ("skill.acme.calc.add_two", "skill_acme_calc_add__two"),
        ("git_hub.list-issues", "git__hub_list-issues"),
        ("a_.b", "a___b"),
    ],
)
def test_a_dot_is_one_underscore_and_an_underscore_two(name: str, shown: str) -> None:
    assert to_client(name) == shown
    assert from_client(shown) == name


@pytest.mark.promise("P-mcp-client")
@given(NAMES)
def test_every_name_comes_back_as_it_was(name: str) -> None:
    assert from_client(to_client(name)) == name


@given(NAMES, NAMES)
def test_no_two_tools_share_a_name(one: str, other: str) -> None:
    assert (to_client(one) == to_client(other)) == (one == other)


def test_the_tools_own_name_is_understood_and_nonsense_is_not() -> None:
    assert from_client("fs.read") == "fs.read"
    for raw in ("", "Fs_Read", "_x", "a b", "x" * 200, "fs._read", "a\n"):
        with pytest.raises(InvalidToolName):
            from_client(raw)
