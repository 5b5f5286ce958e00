import pytest

from palyra.sandbox.guards.interpreters import judge_names, runner_named


@pytest.mark.parametrize(
    "name",
    [
        "gcc",
        "gcc-12",
        "x86_64-linux-gnu-gcc-12",
        "aarch64-linux-gnu-g++",
        "vim.basic",
        "vim.tiny",
        "GIT.exe",
        "nc.openbsd",
    ],
)
def test_an_entry_is_found_in_any_spelling(name: str) -> None:
    assert runner_named(name) is not None


@pytest.mark.parametrize("name", ["ls", "cat", "mytool", "findutils-test", "sorted", "gitk"])
def test_others_have_none(name: str) -> None:
    assert runner_named(name) is None


def test_every_name_of_a_program_is_judged() -> None:
    assert judge_names(("tool", "python3.11"), ()) is not None
    assert judge_names(("tool", "find"), (".", "-exec", "x", ";")) is not None
    assert judge_names(("tool", "find"), (".",)) is None


def test_one_file_with_many_names_is_judged_by_the_one_it_is_called_by() -> None:
    hard_links = ("ls", "busybox", "sh", "awk", "env", "ls")
    assert judge_names(hard_links, ("-la",)) is None
    assert judge_names(("sh", "busybox"), ("-c", "id")) is not None
    assert judge_names(("-sh", "busybox"), ()) is not None
    assert judge_names(("busybox",), ("busybox", "sh")) is not None
    assert judge_names(("busybox",), ("--install", "-s", ".")) is not None


def test_a_mark_in_the_content_cannot_excuse_another() -> None:
    marked = frozenset({"busybox", "python"})
    assert judge_names(("tool",), ("x",), marks=marked) is not None
    assert judge_names(("tool",), ("x",), marks=frozenset({"busybox"})) is None


def test_a_name_that_somebody_invented_is_not_in_the_table() -> None:
    assert judge_names(("task",), ("x",)) is not None
    assert judge_names(("task",), ("x",), invented=frozenset({"task"})) is None
    assert judge_names(("python3",), ("x",), invented=frozenset({"python3"})) is not None


def test_gits_own_commands_are_git() -> None:
    assert judge_names(("git-status", "git"), ()) is None
    assert judge_names(("git-grep", "git"), ("-Osh", "x")) is not None
    assert judge_names(("git", "git-upload-pack"), ("status",)) is None
