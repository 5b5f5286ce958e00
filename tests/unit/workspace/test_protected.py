import pytest

from palyra.workspace import limits, protected
from palyra.workspace.protected import BadProtectedName, ProtectedName, ProtectedNames

NAMES = ProtectedNames((".git/hooks", ".env*", "secrets/*.pem", "[ab]x/", "*.key"))


@pytest.mark.promise("P-files-protected")
@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        (".git/hooks", ".git/hooks"),
        (".git/hooks/deep/er", ".git/hooks"),
        ("a/b/.GIT/HOOKS/x", ".git/hooks"),
        (".git", ".git/hooks"),
        ("a/.git", ".git/hooks"),
        (".env", ".env*"),
        (".Env.production/x", ".env*"),
        ("secrets/a.pem", "secrets/*.pem"),
        ("secrets", "secrets/*.pem"),
        ("bx", "[ab]x/"),
        ("z/id.KEY", "*.key"),
        (".ｅnv", ".env*"),
        (".git\u200d/hooks", ".git/hooks"),
        (".git. ./hooks", ".git/hooks"),
        (".e\ufe0fnv", ".env*"),
    ],
)
def test_protects(path: str, pattern: str) -> None:
    assert NAMES.match(path.split("/")) == pattern
    with pytest.raises(ProtectedName) as caught:
        NAMES.refuse(path.split("/"))
    assert caught.value.details["pattern"] == pattern


@pytest.mark.parametrize(
    "path", [".git/HEAD", "git/hooks", ".git/hook", ".gitignore", "env", "a.env", "secrets/a.txt", "cx", ".git/x/hooks"]
)
def test_leaves_alone(path: str) -> None:
    assert NAMES.match(path.split("/")) is None
    NAMES.refuse(path.split("/"))


def test_no_names_protect_nothing() -> None:
    assert ProtectedNames().match([".git", "hooks"]) is None
    assert NAMES.match([]) is None


@pytest.mark.parametrize("source", ["", "/", "/etc", "../x", "a/../b", "**/x", ".", "a\0"])
def test_refuses_patterns_that_mean_nothing(source: str) -> None:
    with pytest.raises(BadProtectedName):
        ProtectedNames((source,))


def test_refuses_more_names_than_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    assert protected.MAX_PROTECTED_NAMES == limits.MAX_PROTECTED_NAMES
    monkeypatch.setattr(protected, "MAX_PROTECTED_NAMES", 2)
    with pytest.raises(BadProtectedName):
        ProtectedNames(("a", "b", "c"))
