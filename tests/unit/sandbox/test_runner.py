import pytest

from palyra.sandbox.guards.program_runners import Runner, runner_finding

RUNNER = Runner(
    names=("x",), why="w", flags=("--run-it", "-r", "-word", "--act=go", "-o=bad"), valued="f", harmless=("--run",)
)


def position(runner: Runner, *args: str, stdin: bytes = b"") -> int | str | None:
    found = runner_finding(runner, "x", args, stdin)
    return "none" if found is None else found.position


@pytest.mark.parametrize(
    ("args", "at"),
    [
        (("a", "--run-it", "b"), 1),
        (("--run-it=b",), 0),
        (("--run-",), 0),
        (("--ru",), 0),
        (("-r",), 0),
        (("-abr",), 0),
        (("-rvalue",), 0),
        (("-word",), 0),
        (("--word",), 0),
        (("-word=x",), 0),
        (("--act=going",), 0),
        (("--act", "GO"), 0),
        (("-o", "bad"), 0),
        (("-obadly",), 0),
        (("-a", "--", "-r"), 2),
    ],
)
def test_found(args: tuple[str, ...], at: int) -> None:
    assert position(RUNNER, *args) == at


@pytest.mark.parametrize(
    "args", [("run-it",), ("--run",), ("--run-its",), ("--",), ("-",), ("-fr",), ("--act=stop",), ("-o", "good"), ()]
)
def test_not_found(args: tuple[str, ...]) -> None:
    assert position(RUNNER, *args) == "none"


def test_without_clusters_only_the_first_letter_counts() -> None:
    plain = Runner(names=("x",), why="w", flags=("-B",), clusters=False)
    assert position(plain, "-Bdir") == 0 and position(plain, "-DABC") == "none"


def test_subcommands_and_texts() -> None:
    only = Runner(names=("x",), why="w", subcommands=frozenset({"show"}))
    assert position(only, "-v", "run") == 1 and position(only, "show", "run") == "none" and position(only) == "none"
    text = Runner(names=("x",), why="w", text=r"^\.sh", reads_input=True, unless="-safe")
    assert position(text, "a", ".shell") == 1
    assert position(text, stdin=b"select 1;\n.shell id\n") is None
    assert position(text, stdin=b"select '.shell';") == "none"
    assert position(text, "-safe", ".shell") == "none"


def test_always_but_for_the_version() -> None:
    always = Runner(names=("x",), why="w", always=True)
    assert position(always) is None and position(always, "a") == 0
    assert position(always, "--version") == "none" and position(always, "--version", "a") == 0
