import pytest

from palyra.executors.builtin import ECHO
from palyra.ids import InvalidToolName, ToolName
from palyra.limits import MAX_TOOL_INPUT_BYTES, MAX_TOOL_NAME_CHARS
from palyra.pipeline.domain.spec import ToolCapability, ToolMetadata, access_nothing


@pytest.mark.parametrize("name", ["echo", "fs.read", "skill.acme.do-it", "a.1", "a_b", "x" * MAX_TOOL_NAME_CHARS])
def test_tool_names(name: str) -> None:
    assert ToolName.parse(name) == name


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize(
    "name",
    ["", "Echo", "fs.", ".fs", "fs..read", "1a", "a b", "a/b", "a\n", "é", "a.-b", "x" * (MAX_TOOL_NAME_CHARS + 1)],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidToolName):
        ToolName.parse(name)


@pytest.mark.parametrize("capability", list(ToolCapability))
def test_every_capability_but_one_makes_a_tool_sensitive(capability: ToolCapability) -> None:
    sensitive = ToolMetadata(capabilities=frozenset({capability})).sensitive
    assert sensitive is (capability is not ToolCapability.ARTIFACTS_READ)


def test_a_tool_that_names_nothing_touches_nothing_and_is_not_sensitive() -> None:
    assert not ToolMetadata().sensitive
    touched = access_nothing({"path": "/etc/passwd"})
    assert (touched.paths, touched.hosts, touched.secrets) == ((), (), ())


def test_a_tool_says_how_much_it_takes_and_what_it_can_be_held_to() -> None:
    assert ECHO.max_input_bytes == MAX_TOOL_INPUT_BYTES
    assert ECHO.enforceable == {"timeout_ms", "max_output_bytes"}
