"""Content is told from bytes, whatever anybody calls it."""

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.browser.domain.content_sniffing import Content, sniff


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return buffer.getvalue()


PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", Content.TEXT),
        (b"name,price\nshoe,12\n", Content.TEXT),
        (b"MZ,first column\n1,2\n" + b"3,4\n" * 20, Content.TEXT),
        ("Größe;Preis\n1;2\n".encode("cp1252"), Content.TEXT),
        ("a,b\n".encode("utf-16"), Content.TEXT),
        (b'{"page": "<script>alert(1)</script>"}', Content.JSON),
        (b"[1, 2]", Content.JSON),
        (PDF, Content.PDF),
        (PDF[:20], Content.OTHER),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), Content.PNG),
        (b"\xff\xd8\xff\xe0" + bytes(30), Content.JPEG),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", Content.WEBP),
        (zipped("a.txt"), Content.ZIP),
        (zipped("[Content_Types].xml", "xl/workbook.xml"), Content.XLSX),
        (zipped("[Content_Types].xml", "word/document.xml"), Content.DOCX),
        (zipped("[Content_Types].xml", "xl/vbaProject.bin"), Content.EXECUTABLE),
        (zipped("META-INF/MANIFEST.MF", "A.class"), Content.EXECUTABLE),
        (b"PK\x03\x04garbage", Content.OTHER),
        (b"MZ\x90\x00" + bytes(100), Content.EXECUTABLE),
        (b"\x7fELF\x02\x01\x01" + bytes(50), Content.EXECUTABLE),
        (b"\x00asm\x01\x00\x00\x00", Content.EXECUTABLE),
        (b"L\x00\x00\x00\x01\x14\x02\x00" + bytes(50), Content.EXECUTABLE),
        (b"{\\rtf1\\ansi hello}", Content.EXECUTABLE),
        (b"#!/bin/sh\nrm -rf ~\n", Content.SCRIPT),
        (b"@echo off\r\ndel x\r\n", Content.SCRIPT),
        (b"<?php system($_GET[0]); ?>", Content.SCRIPT),
        (b'hello\nSet s = CreateObject("WScript.Shell")\n', Content.SCRIPT),
        (b"<!DOCTYPE html><p>hello", Content.MARKUP),
        (b"\xef\xbb\xbf \n\t<HTML>", Content.MARKUP),
        ("<script>1</script>".encode("utf-16"), Content.MARKUP),
        (b"<!-- note --><svg onload=alert(1)>", Content.MARKUP),
        (b"just text, then <script>alert(1)</script>", Content.MARKUP),
        (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", Content.MARKUP),
        (b"\x00\x01\x02\x03", Content.OTHER),
        (b"<\x00s\x00c\x00r\x00i\x00p\x00t\x00>\x00", Content.OTHER),
    ],
)
def test_kinds(data: bytes, kind: Content) -> None:
    assert kind in sniff(data).kinds


def test_a_number_is_text_and_json() -> None:
    assert sniff(b"42\n").kinds == {Content.TEXT, Content.JSON}


def test_an_object_is_no_table() -> None:
    assert Content.TEXT not in sniff(b'{"a": 1}').kinds


@pytest.mark.parametrize("front", [PDF, b"\x89PNG\r\n\x1a\n" + bytes(30), b"plain text\n"])
def test_an_archive_behind_another_type_is_seen(front: bytes) -> None:
    assert sniff(front + zipped("A.class")).polyglot
    assert not sniff(front).polyglot


def test_a_page_inside_a_picture_is_seen() -> None:
    assert sniff(b"GIF89a/*<script>alert(1)</script>").polyglot


def test_a_pdf_that_begins_later_is_no_pdf() -> None:
    assert Content.PDF not in sniff(b"MZ\x00\x00" + PDF).kinds
    assert Content.PDF not in sniff(b"x" + PDF).kinds


@given(st.binary(max_size=400))
def test_any_bytes_have_an_answer(data: bytes) -> None:
    assert sniff(data).kinds
    assert sniff(b"PK\x03\x04" + data).kinds
    assert sniff(b"%PDF-" + data).kinds
