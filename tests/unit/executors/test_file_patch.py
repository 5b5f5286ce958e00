import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.executors.files import patch as patch_module
from palyra.executors.files.patch import (
    Change,
    Edit,
    PatchMalformed,
    PatchMismatch,
    PatchNotAllowed,
    apply_diff,
    apply_edits,
    parse_diff,
)

_LINES = st.lists(st.sampled_from(["a", "b", "c", "", "-x", "+y", "\\ z", " ", "@@ -1 +1 @@", "é", "a\r"]), max_size=14)


def make_diff(old: str, new: str, context: int) -> str:
    """A unified diff by difflib, with the marker for a missing last newline that difflib leaves out."""
    made = difflib.unified_diff(split(old), split(new), "a/f", "b/f", n=context)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in made)


def split(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    return [*lines[:-1], lines[-1][:-1]] if lines[-1] != "\n" else lines[:-1]


@given(_LINES, _LINES, st.booleans(), st.booleans(), st.integers(0, 4))
def test_a_diff_made_elsewhere_gives_the_target(
    old_lines: list[str], new_lines: list[str], old_ends: bool, new_ends: bool, context: int
) -> None:
    old = "\n".join(old_lines) + ("\n" if old_ends and old_lines else "")
    new = "\n".join(new_lines) + ("\n" if new_ends and new_lines else "")
    if old == new:
        return
    diff = make_diff(old, new, context)
    if "\r" not in diff and 0 < old.count("\n") == old.count("\r\n"):
        # A diff without any CR for a file with CRLF throughout is read as if it had them: tested on its own below.
        return
    assert apply_diff(parse_diff(diff), old.encode()) == new.encode()


@given(_LINES, _LINES, _LINES)
def test_a_diff_never_applies_to_a_file_that_differs_where_it_looks(
    old_lines: list[str], new_lines: list[str], other_lines: list[str]
) -> None:
    old, new, other = ("".join(line + "\n" for line in lines) for lines in (old_lines, new_lines, other_lines))
    other += "tail\n"
    # The diff has all of the old file as context, so it fits exactly the files that start with it.
    if old == new or other.startswith(old):
        return
    with pytest.raises(PatchMismatch):
        apply_diff(parse_diff(make_diff(old, new, 99)), other.encode())


def test_bare_hunks_and_git_headers_are_read() -> None:
    assert apply_diff(parse_diff("@@ -1 +1 @@ def f():\n-a\n+b"), b"a\n") == b"b\n"
    git = "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\t2026-01-01\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    parsed = parse_diff(git)
    assert (parsed.old_path, parsed.new_path, parsed.change) == ("a/f", "b/f", Change.MODIFY)


@pytest.mark.parametrize(
    "diff",
    [
        "",
        "\n",
        "hello",
        "--- a\n@@ -1 +1 @@\n-a\n+b\n",
        "--- a\n+++ b\n",
        "@@ -1,2 +1 @@\n-a\n+b\n",
        "@@ -1 +1 @@\n-a\n+b\n c\n",
        "@@ -1 +1 @@\n-a\n\n+b\n",
        "@@ -0 +0 @@\n-a\n+b\n",
        "@@ -x +1 @@\n-a\n+b\n",
        "@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n",
        "@@ -1 +1 @@\n-a\n\\ whatever\n+b\n",
        "@@ -1 +1 @@\n-a\n+b\n--- c\n+++ d\n@@ -1 +1 @@\n-a\n+b\n",
        "rename from a\nrename to b\n@@ -1 +1 @@\n-a\n+b\n",
        "@@ -1 +1 @@\n-a\n+\ud800\n",
        "@@ -1 +5 @@\n-a\n+b\n",
        "@@ -1 +1 @@\n-a\n+b\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_a_diff_that_is_not_strict_is_refused(diff: str) -> None:
    with pytest.raises(PatchMalformed):
        apply_diff(parse_diff(diff), b"a\nb\n")


def test_there_is_no_fuzz() -> None:
    diff = parse_diff("@@ -2 +2 @@\n-b\n+B\n")
    assert apply_diff(diff, b"a\nb\n") == b"a\nB\n"
    for original in (b"b\n", b"a\na\nb\n", b"a\nb \n", b"a\nb", b""):
        with pytest.raises(PatchMismatch):
            apply_diff(diff, original)
    with pytest.raises(PatchMismatch):
        apply_diff(parse_diff("@@ -9,0 +10 @@\n+x\n"), b"a\n")


def test_a_line_loses_its_newline_only_at_the_end() -> None:
    diff = "@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n"
    assert apply_diff(parse_diff(diff), b"a\n") == b"A"
    with pytest.raises(PatchMismatch):
        apply_diff(parse_diff(diff), b"a\nb\n")


def test_creating_and_deleting_are_refused() -> None:
    create = parse_diff("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n")
    delete = parse_diff("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n")
    assert (create.change, delete.change) == (Change.CREATE, Change.DELETE)
    for each in (create, delete):
        with pytest.raises(PatchNotAllowed):
            apply_diff(each, b"a\n")


def test_crlf_is_preserved() -> None:
    original = b"a\r\nb\r\nc"
    assert apply_diff(parse_diff("@@ -1,2 +1,3 @@\n a\n-b\n+B\n+C\n"), original) == b"a\r\nB\r\nC\r\nc"
    assert apply_diff(parse_diff("@@ -2 +2 @@\n-b\r\n+B\r\n"), original) == b"a\r\nB\r\nc"
    assert apply_edits([Edit(old="a\nb", new="x\ny\nz")], original) == b"x\r\ny\r\nz\r\nc"
    assert apply_edits([Edit(old="a\r\nb", new="x")], original) == b"x\r\nc"
    with pytest.raises(PatchMismatch):
        apply_diff(parse_diff("@@ -1 +1 @@\n-a\n+b\n"), b"a\r\nb\n")


def test_edits_match_exactly_once_in_the_original() -> None:
    assert apply_edits([Edit(old="b", new="a"), Edit(old="a", new="b")], b"a b") == b"b a"
    assert apply_edits([Edit(old="a", new="")], b"\xff a \xff") == b"\xff  \xff"
    for edits, original in (
        ([Edit(old="x", new="")], b"a"),
        ([Edit(old="a", new="")], b"a a"),
        ([Edit(old="aa", new="")], b"aaa"),
        ([Edit(old="ab", new="x"), Edit(old="bc", new="y")], b"abc"),
        ([Edit(old="a", new="x"), Edit(old="a", new="y")], b"abc"),
    ):
        with pytest.raises(PatchMismatch):
            apply_edits(edits, original)
    for bad in (Edit(old="", new="x"), Edit(old="\ud800", new="x")):
        with pytest.raises(PatchMalformed):
            apply_edits([bad], b"abc")


@given(st.binary(max_size=30), st.text(min_size=1, max_size=6), st.text(max_size=6), st.binary(max_size=30))
def test_an_edit_changes_its_text_and_nothing_else(head: bytes, old: str, new: str, tail: bytes) -> None:
    original = head + old.encode() + tail
    try:
        result = apply_edits([Edit(old=old, new=new)], original)
    except PatchMismatch:
        return
    if b"\n" not in original:
        assert result == head + new.encode() + tail


def test_hunks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_module, "MAX_HUNKS", 1)
    with pytest.raises(PatchMalformed):
        parse_diff("@@ -1 +1 @@\n-a\n+b\n@@ -2 +2 @@\n-a\n+b\n")
