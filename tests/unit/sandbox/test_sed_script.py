import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.sandbox.guards.sed_script import Malformed, read_line, read_script

RUNS = r"""
1e
1e id
e
$!e id
1!e id
1,3 e id
1~2e id
0,/x/e id
/x/I e id
\,x,e id
/[/]/e id
y/abc/xyz/;e id
bx;e id
:x;e id
1{e id
n;n;{p;e id
s/x/y/e
s/x/y/ge
s/x/y/2pe
s,x,[,e
s/[/]/x/e
s/a\/b/c/e
s|a|b|;s|c|d|e
/a/,/b/s/x/y/e
l 5;e id
q 3;e id
=;e id
""".strip().splitlines()

HARMLESS = r"""
s/a/b/
s/e/e/g
s,/usr/local,/opt,g
s|e|e|
/^#/d
/error/!d
$d
1,10p
2q
y/abc/efe/
s/[/]e/x/
s/\(a\)e/\1e/
a execute
i\e id
c e
:e;N;be
be
te
w e
r e.txt
s/x/y/w e
s/a/b/;s/c/d/
1~2d
/[[:space:]]e/d
/a/{s/x/y/;p}
""".strip().splitlines()


@pytest.mark.parametrize("script", RUNS)
def test_a_script_that_runs_a_program_is_found(script: str) -> None:
    assert read_script(script).runs is not None


@pytest.mark.parametrize("script", HARMLESS)
def test_other_scripts_are_not(script: str) -> None:
    assert read_script(script).runs is None


def test_text_is_no_command_and_ends_at_its_line() -> None:
    assert read_script("a\\\ne id").runs is None
    assert read_script("a\\\nfoo\\\ne id").runs is None
    assert read_script("a foo\ne id").runs is not None
    assert read_script("# comment; e\np").runs is None


def test_files_are_told() -> None:
    assert read_script("w /etc/x\nr y").files == ("/etc/x", "y")
    assert read_script("s/a/b/gw /etc/z").files == ("/etc/z",)


@pytest.mark.parametrize("script", ["s/a", "k", "1,p", "/x", "y/a/", "s"])
def test_what_makes_no_sense_is_malformed(script: str) -> None:
    with pytest.raises(Malformed):
        read_script(script)


@pytest.mark.parametrize(
    ("args", "script", "places"),
    [
        (("s/a/b/", "f"), "s/a/b/", {0}),
        (("-n", "1e", "f"), "1e", {1}),
        (("-ne", "1e id", "f"), "1e id", {1}),
        (("-e", "p", "-e1e", "f"), "p\n1e", {1, 2}),
        (("--expression=1e",), "1e", {0}),
        (("--exp", "1e"), "1e", {1}),
        (("f", "-e", "p"), "p", {2}),
        (("-i.bak", "s/e/x/", "f"), "s/e/x/", {1}),
        (("-ie", "s/e/x/", "f"), "s/e/x/", {1}),
        (("-l", "5", "p"), "p", {2}),
        (("-E", "--", "-e"), "-e", {2}),
    ],
)
def test_the_words_that_are_scripts(args: tuple[str, ...], script: str, places: set[int]) -> None:
    line = read_line(args)
    assert (line.script, line.positions) == (script, places)


def test_script_files_and_the_sandbox_option() -> None:
    assert read_line(("-nf", "x.sed", "f")).script_files == (1,)
    assert read_line(("--file=x.sed",)).script_files == (0,)
    assert read_line(("--sandbox", "e")).sandbox
    assert not read_line(("-s", "e")).sandbox


PIECES = st.sampled_from(
    [
        "s",
        "/",
        ",",
        "e",
        " e",
        "[",
        "]",
        "\\",
        "a",
        "1",
        "$",
        "!",
        "{",
        "}",
        ";",
        "\n",
        "g",
        "p",
        "w",
        "y",
        "b",
        ":",
        "x",
        "I",
        "~",
    ]
)
SED = shutil.which("sed")


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=12).map("".join))
def test_no_script_that_seds_own_sandbox_refuses_is_missed(script: str) -> None:
    """GNU sed itself is the judge: its --sandbox mode refuses e, r and w while reading the script."""
    assert SED is not None
    asked = subprocess.run(
        [SED, "--sandbox", "-n", "-e", script], input=b"", capture_output=True, check=False, timeout=10
    )
    if b"disabled in sandbox mode" not in asked.stderr:
        return
    try:
        read = read_script(script)
    except Malformed:
        return
    assert read.runs is not None or read.files
