import pytest

from palyra.errors import PalyraError
from palyra.executors.files.spec import FILE_TOOLS


def test_the_five_tools_and_what_they_may_do() -> None:
    assert {name: tool.spec.metadata.capabilities for name, tool in FILE_TOOLS.items()} == {
        "fs.read": {"filesystem_read"},
        "fs.list": {"filesystem_read"},
        "fs.search": {"filesystem_read"},
        "fs.write": {"filesystem_write"},
        "fs.patch": {"filesystem_read", "filesystem_write"},
    }
    assert all(tool.spec.title and tool.spec.description for tool in FILE_TOOLS.values())


@pytest.mark.parametrize("name", FILE_TOOLS)
def test_policies_see_one_spelling_of_a_path(name: str) -> None:
    touches = FILE_TOOLS[name].spec.touches
    assert touches({"path": "./a//b/"}) == touches({"path": "a/b"})
    assert touches({"path": "a/b"}).paths == ("a/b",)
    for path in ("../a", "/a", ""):
        with pytest.raises(PalyraError):
            touches({"path": path})


def test_a_tool_without_a_path_touches_the_root() -> None:
    assert FILE_TOOLS["fs.list"].spec.touches({}).paths == (".",)
    assert FILE_TOOLS["fs.search"].spec.touches({"query": "x"}).paths == (".",)
