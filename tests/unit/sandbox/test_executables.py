import pytest

from palyra.sandbox.domain.process_run import ExecutableDenied, SpawnFailed
from palyra.sandbox.guards.executables import Kind, ResolvedExecutable, find_executable, refuse_unlisted_executable

LS = ResolvedExecutable(typed="ls", found="/usr/bin/ls", real="/usr/bin/ls", kind=Kind.FILE, on_path=True)
OWN = ResolvedExecutable(typed="./ls", found="/ws/ls", real="/ws/ls", kind=Kind.FILE, in_workspace=True)
LINKED = ResolvedExecutable(
    typed="vi", found="/usr/bin/vi", real="/usr/bin/vim.basic", passed=("/usr/bin/vi",), kind=Kind.FILE, on_path=True
)
FOREIGN = ResolvedExecutable(typed="/home/u/x", found="/home/u/x", real="/home/u/x", kind=Kind.FILE)


class One:
    def __init__(self, found: ResolvedExecutable | None) -> None:
        self._found = found

    def find(self, command: str, cwd: str) -> ResolvedExecutable | None:
        return self._found


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (LS, None),
        (OWN, None),
        (LS, ("ls",)),
        (LS, ("/usr/bin/ls",)),
        (OWN, ("/ws/ls",)),
        (LINKED, ("vi",)),
        (LINKED, ("/usr/bin/vim.basic",)),
        (FOREIGN, ("/home/u/x",)),
    ],
)
def test_allowed(found: ResolvedExecutable, allowed: tuple[str, ...] | None) -> None:
    refuse_unlisted_executable(found, allowed)


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (LS, ()),
        (LS, ("cat", "/bin/ls")),
        (OWN, ("ls",)),
        (LINKED, ("vim.basic",)),
        (FOREIGN, None),
        (FOREIGN, ("x",)),
    ],
)
def test_refused(found: ResolvedExecutable, allowed: tuple[str, ...] | None) -> None:
    with pytest.raises(ExecutableDenied) as refusal:
        refuse_unlisted_executable(found, allowed)
    assert refusal.value.details["argument"] == "command"


def test_a_magic_link_is_refused_even_if_listed() -> None:
    magic = ResolvedExecutable(typed="/proc/self/exe", found="/proc/self/exe", real="/proc/self/exe", kind=Kind.MAGIC)
    with pytest.raises(ExecutableDenied):
        refuse_unlisted_executable(magic, ("/proc/self/exe",))


def test_a_tool_root_is_a_place_for_programs() -> None:
    refuse_unlisted_executable(FOREIGN, None, ("/usr", "/home/u"))


@pytest.mark.parametrize("kind", [Kind.MISSING, Kind.DIRECTORY, Kind.UNREADABLE, Kind.LOOP])
def test_what_cannot_be_executed_is_told(kind: Kind) -> None:
    found = ResolvedExecutable(typed="x", found="/ws/x", real="/ws/x", kind=kind)
    with pytest.raises(SpawnFailed):
        find_executable(One(found), "x", "/ws")
    with pytest.raises(SpawnFailed):
        find_executable(One(None), "x", "/ws")


def test_names_cover_links_and_twins() -> None:
    both = ResolvedExecutable(
        typed="./a", found="/ws/a", passed=("/ws/a", "/ws/b"), real="/ws/c", kind=Kind.FILE, twins=frozenset({"perl"})
    )
    assert both.names == ("a", "b", "c", "perl")
