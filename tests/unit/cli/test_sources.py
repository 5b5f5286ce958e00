import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from palyra.cli.terminal import SourceTooLarge, SourceUnreadable, read_file, read_file_or_stdin, read_text_argument


def test_text_is_taken_as_typed() -> None:
    assert read_text_argument('{"a":1, "a":2}', 5) == '{"a":1, "a":2}'


def test_a_file_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.json").write_bytes(b'{"a": 1}\n')
    assert read_text_argument(f"@{tmp_path / 'in.json'}", 100) == '{"a": 1}\n'
    assert read_file_or_stdin(str(tmp_path / "in.json"), 100) == b'{"a": 1}\n'
    for read in (read_text_argument, read_file_or_stdin):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"[]")))
        assert read("-", 100) in ("[]", b"[]")


def test_what_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff")
    for word in (f"@{tmp_path / 'missing'}", f"@{tmp_path}", f"@{tmp_path / 'latin'}", "@a\0b"):
        with pytest.raises(SourceUnreadable):
            read_text_argument(word, 100)


def test_what_is_too_large_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 10**12)
    with pytest.raises(SourceTooLarge):
        read_text_argument(f"@{tmp_path / 'huge'}", 100)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"x" * 101)))
    with pytest.raises(SourceTooLarge):
        read_text_argument("-", 100)


def test_the_hint_is_about_what_the_command_wanted(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 101)
    for name in ("missing", "large"):
        with pytest.raises((SourceUnreadable, SourceTooLarge)) as caught:
            read_file(tmp_path / name, 100, hint="name an archive")
        assert caught.value.hint == "name an archive"
    with pytest.raises(SourceUnreadable) as caught:
        read_file_or_stdin(str(tmp_path / "missing"), 100)
    assert "JSON" not in caught.value.hint
    with pytest.raises(SourceUnreadable) as caught:
        read_text_argument(f"@{tmp_path / 'missing'}", 100)
    assert "@FILE" in caught.value.hint
