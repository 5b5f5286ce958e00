"""Twenty downloads: honest, disguised, oversized, with traversal names, double endings and wrong types."""

import io
import zipfile

from palyra.browser.domain.download import Reason
from palyra.limits import MIB


def _jar() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Main-Class: Evil\n")
    return buffer.getvalue()


CSV = b"order,total\n1001,19.90\n"
PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\nstartxref\n9\n%%EOF\n"
PROGRAM = b"MZ\x90\x00\x03" + bytes(200)
ALLOWED: tuple[Reason, ...] = ()

# name suggested, type declared, content, name shown, reasons
FILES = {
    "honest csv": ("orders.csv", "text/csv; charset=utf-8", CSV, "orders.csv", ALLOWED),
    "honest pdf": ("invoice.pdf", "application/pdf", PDF, "invoice.pdf", ALLOWED),
    "honest json": ("data.json", "application/json", b'{"html": "<script>"}', "data.json", ALLOWED),
    "honest text, nothing declared": ("notes v1.2.txt", None, "Grüße\n".encode(), "notes v1.2.txt", ALLOWED),
    "honest csv declared as just a file": ("a.csv", "application/octet-stream", CSV, "a.csv", ALLOWED),
    "program as pdf": (
        "invoice.pdf",
        "application/pdf",
        PROGRAM,
        "invoice.pdf",
        (Reason.EXECUTABLE, Reason.CONTENT),
    ),
    "elf as text": (
        "notes.txt",
        "text/plain",
        b"\x7fELF\x02\x01\x01" + bytes(64),
        "notes.txt",
        (Reason.EXECUTABLE, Reason.CONTENT),
    ),
    "script as text": ("notes.txt", "text/plain", b"#!/bin/sh\nid\n", "notes.txt", (Reason.SCRIPT, Reason.CONTENT)),
    "html as text": (
        "notes.txt",
        "text/plain",
        b" \n<!DOCTYPE html><script>1</script>",
        "notes.txt",
        (Reason.MARKUP, Reason.CONTENT),
    ),
    "svg as csv": (
        "a.csv",
        "text/csv",
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='x()'/>",
        "a.csv",
        (Reason.MARKUP, Reason.CONTENT),
    ),
    "jar behind a pdf": ("invoice.pdf", "application/pdf", PDF + _jar(), "invoice.pdf", (Reason.POLYGLOT,)),
    "program by its honest name": (
        "setup.exe",
        "application/octet-stream",
        PROGRAM,
        "setup.exe",
        (Reason.EXECUTABLE, Reason.EXTENSION),
    ),
    "double extension, program last": (
        "bill.pdf.exe",
        "application/pdf",
        PDF,
        "bill.pdf.exe",
        (Reason.DOUBLE_EXTENSION, Reason.EXTENSION),
    ),
    "double extension, program first": (
        "bill.exe.pdf",
        "application/pdf",
        PDF,
        "bill.exe.pdf",
        (Reason.DOUBLE_EXTENSION,),
    ),
    "name that turns around": ("bill\u202efdp.txt", "text/plain", b"hello", "billfdp.txt", (Reason.MISLEADING_NAME,)),
    "csv declared as html": ("orders.csv", "text/html", CSV, "orders.csv", (Reason.DECLARED,)),
    "json that is none": ("data.json", "application/json", b"{not json", "data.json", (Reason.CONTENT,)),
    "traversal": ("../../../../etc/cron.d/job.txt", "text/plain", b"* * * * *", "job.txt", ALLOWED),
    "traversal the other way": (
        "..\\..\\Startup\\run.bat",
        "text/plain",
        b"@echo off\r\n",
        "run.bat",
        (Reason.SCRIPT, Reason.EXTENSION),
    ),
    "oversized": ("big.csv", "text/csv", b"1,2\n" * (2 * MIB + 1), "big.csv", (Reason.TOO_LARGE, Reason.INCOMPLETE)),
}
