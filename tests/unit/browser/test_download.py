"""Names are cleaned for showing; name, declared and real type must agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.browser.domain.content_sniffing import sniff
from palyra.browser.domain.download import (
    DEFAULT_EXTENSIONS,
    KNOWN_TYPES,
    MAX_NAME_BYTES,
    Arrived,
    Folder,
    Reason,
    UnknownFileType,
    essence,
    extension_of,
    judge,
    rules,
    to_display_name,
)

TEXT = sniff(b"hello")


def reasons(name: str, declared: str | None = None, data: bytes = b"hello", **more: bool) -> tuple[Reason, ...]:
    verdict = judge(Arrived(suggested_name=name, declared_type=declared, sniffed=sniff(data), **more), rules())
    assert (verdict.folder is Folder.ALLOWLIST) == (verdict.reasons == ())
    return verdict.reasons


@pytest.mark.parametrize(
    ("suggested", "shown"),
    [
        ("orders.csv", "orders.csv"),
        ("../../etc/passwd.txt", "passwd.txt"),
        ("..\\..\\Windows\\win.txt", "win.txt"),
        ("/etc/shadow", "shadow"),
        ("..", "download"),
        ("", "download"),
        (" . . ", "download"),
        (".bashrc", "bashrc"),
        ("a\x00b\r\nc.txt", "abc.txt"),
        ("bill\u202efdp.exe", "billfdp.exe"),
        ("nul.txt", "_nul.txt"),
        ("CON", "_CON"),
        ("a.txt:stream.exe", "a.txt_stream.exe"),
        ("report.pdf. . .", "report.pdf"),
        ("a   \t b.txt", "a b.txt"),
        ("Bericht für März.pdf", "Bericht für März.pdf"),
        ("x/", "download"),
    ],
)
def test_shown_names(suggested: str, shown: str) -> None:
    assert to_display_name(suggested) == shown


@given(st.text(max_size=400))
def test_a_shown_name_is_short_visible_and_no_path(suggested: str) -> None:
    name = to_display_name(suggested)
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    assert not set(name) & set('/\\:"<>|?*\x00\n\r')
    assert name == name.strip(" .") and name.isprintable()
    assert to_display_name(name) == name


def test_a_long_name_keeps_its_ending() -> None:
    assert to_display_name("é" * 500 + ".csv").endswith("é.csv")
    assert extension_of("x" * 500 + ".CSV") == ".csv"


def test_honest_files() -> None:
    assert reasons("a.txt", "text/plain; charset=utf-8") == ()
    assert reasons("a.csv", "application/octet-stream") == ()
    assert reasons("a.csv", None) == ()
    assert reasons("release-1.2.3.txt", "TEXT/PLAIN") == ()


def test_every_reason_is_told_in_order() -> None:
    assert reasons("a.exe.txt", "text/html", b"<html>") == (
        Reason.MARKUP,
        Reason.DOUBLE_EXTENSION,
        Reason.DECLARED,
        Reason.CONTENT,
    )


def test_names_that_deceive() -> None:
    assert Reason.MISLEADING_NAME in reasons("bill\u202etxt.txt")
    assert Reason.DOUBLE_EXTENSION in reasons("bill.exe.txt")
    assert reasons("bill.pdf.exe") == (Reason.DOUBLE_EXTENSION, Reason.EXTENSION)
    assert Reason.DOUBLE_EXTENSION in reasons("bill.html  .txt")


def test_a_part_of_a_file() -> None:
    assert reasons("a.pdf", data=b"%PDF-1.7 half", complete=False, too_large=True) == (
        Reason.TOO_LARGE,
        Reason.INCOMPLETE,
    )


def test_only_endings_that_can_be_checked_may_be_allowed() -> None:
    assert rules(["PNG", ".zip"]).extensions == {*DEFAULT_EXTENSIONS, ".png", ".zip"}
    for ending in (".exe", ".html", ".svg", "", ".parquet"):
        with pytest.raises(UnknownFileType):
            rules([ending])


@pytest.mark.parametrize("ending", KNOWN_TYPES)
def test_no_known_type_accepts_what_runs(ending: str) -> None:
    every = rules(KNOWN_TYPES)
    for data in (b"MZ\x00" + bytes(80), b"<html>", b"#!/bin/sh\n", b"\x7fELF" + bytes(20)):
        arrived = Arrived(suggested_name=f"a{ending}", declared_type=None, sniffed=sniff(data))
        assert judge(arrived, every).folder is Folder.QUARANTINE


def test_declared_types() -> None:
    assert essence(" Text/CSV ; header=present") == "text/csv"
    assert essence(None) is None
    assert essence(" ;") is None
