import pytest

from palyra.workspace.errors import BadPattern
from palyra.workspace.protected import Glob, name_pattern


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/deep/a.py", True),
        ("*.py", "a.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/x/a.py", False),
        ("src/*.py", "x/src/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("**/test/**", "a/test/b/c", True),
        ("**/test/**", "a/b", False),
        ("*.{c,h}", "x.h", True),
        ("*.{c,h}", "x.o", False),
        ("{a,b}/{c,d}", "b/c", True),
        ("{a", "{a", True),
        ("[!a]?", "bc", True),
        ("[!a]?", "ac", False),
        ("./src/a", "src/a", True),
        ("a*", "a\nb", True),
    ],
)
def test_matches(pattern: str, path: str, expected: bool) -> None:
    assert Glob(pattern).matches(path.split("/")) is expected


@pytest.mark.parametrize("pattern", ["", "a\0", "../*", "x" * 1001, "{a,b}" * 7, "{" + "," * 70 + "}"])
def test_refuses(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Glob(pattern)


def test_many_stars_do_not_backtrack() -> None:
    # A backtracking matcher would need more steps here than there is time: the test would hit its timeout.
    assert name_pattern("*a" * 100 + "b").match("a" * 255) is None
    assert not Glob("**/a/" * 150 + "b").matches(["a"] * 1000)
