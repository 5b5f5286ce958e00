import pytest

from palyra.sandbox.guards.argument_paths import code_places, text_places


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("sed /x/d f", {0}),
        ("sed -e /x/d -e p f", {1, 3}),
        ("grep /x f", {0}),
        ("grep -r -A 3 /x f", {3}),
        ("grep -e /x f", {1}),
        ("grep -re /x f", set()),
        ("grep -f /x f", set()),
        ("grep --file=/x f", set()),
        ("grep -- /x f", {1}),
        ("find . -path /x", {2}),
        ("git commit -m /x", {2}),
        ("git log --grep=/x", {1}),
        ("git add :/", {1}),
        ("git -c user.email=a@b.example commit", {1}),
        ("git -c core.editor=/x commit", set()),
        ("ssh-keygen -C a@b.example -f /x", {1}),
        ("echo /a /b", {0, 1}),
        ("jq /x f", {0}),
        ("jq -nf /x", set()),
        ("curl -d /x u", {1}),
        ("cut -d/ -f1", {0}),
        ("cc -DX=/y a.c", {0}),
        ("cat /x", set()),
        ("/usr/bin/grep /x f", {0}),
        ("./grep /x f", set()),
        ("/grep /x f", set()),
        ("sub/echo /x", set()),
    ],
)
def test_where_text_stands(line: str, places: set[int]) -> None:
    command, *args = line.split()
    assert text_places(command, tuple(args)).texts == places


def test_a_sed_script_names_files() -> None:
    assert text_places("sed", ("-n", "w /etc/x", "f")).files == ((1, "/etc/x"),)
    assert text_places("sed", ("s/a", "f")).texts == frozenset()


def test_a_file_after_an_at_sign_is_no_text() -> None:
    assert text_places("curl", ("--data=@/x",)).texts == frozenset()


@pytest.mark.parametrize(
    ("command", "args", "places"),
    [
        ("sh", ("-c", "cat /etc/x"), {1}),
        ("/usr/bin/python3.11", ("-I", "-c", "open('/x')", "/y"), {2}),
        ("node", ("--eval", "x", "y"), {1}),
        ("python3", ("script.py", "-c", "/etc/x"), set()),
        ("./python3", ("-c", "/etc/x"), set()),
        ("grep", ("-c", "/etc/x"), set()),
        ("sh", ("script",), set()),
    ],
)
def test_programs_for_interpreters(command: str, args: tuple[str, ...], places: set[int]) -> None:
    assert code_places(command, args) == places
