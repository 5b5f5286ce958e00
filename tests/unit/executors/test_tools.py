import pytest

from palyra.errors import PalyraError
from palyra.executors.files.spec import FILE_TOOLS

TOOLS = {tool.name: tool for tool in FILE_TOOLS}


def test_the_five_tools_and_what_they_may_do() -> None:
    assert {tool.name: tool.capabilities for tool in FILE_TOOLS} == {
        "fs.read": ("filesystem_read",),
        "fs.list": ("filesystem_read",),
        "fs.search": ("filesystem_read",),
        "fs.write": ("filesystem_write",),
        "fs.patch": ("filesystem_read", "filesystem_write"),
    }
    assert all(tool.title and tool.description for tool in FILE_TOOLS)


@pytest.mark.parametrize("name", TOOLS)
def test_policies_see_one_spelling_of_a_path(name: str) -> None:
    touches = TOOLS[name].touches
    assert touches({"path": "./a//b/"}) == touches({"path": "a/b"}) == ("a/b",)
    for path in ("../a", "/a", ""):
        with pytest.raises(PalyraError):
            touches({"path": path})


def test_a_tool_without_a_path_touches_the_root() -> None:
    assert TOOLS["fs.list"].touches({}) == (".",)
    assert TOOLS["fs.search"].touches({"query": "x"}) == (".",)
