import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.skills.limits import MAX_ENTRIES
from palyra.skills.package.artifact import ArchiveTooLarge, MalformedArchive, read_archive, write_archive

ENTRIES = st.dictionaries(st.text("abc/.", min_size=1, max_size=6), st.binary(max_size=40), min_size=1, max_size=5)


@given(ENTRIES)
def test_reading_gives_back_what_was_written(entries: dict[str, bytes]) -> None:
    raw = write_archive(entries)
    assert read_archive(raw) == entries
    assert write_archive(dict(reversed(entries.items()))) == raw


@given(ENTRIES)
def test_other_readers_read_the_same(entries: dict[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(write_archive(entries))) as other:
        assert {name: other.read(name) for name in other.namelist()} == entries
        assert other.testzip() is None


@given(ENTRIES, st.data())
def test_every_changed_byte_is_refused_or_is_other_content(entries: dict[str, bytes], data: st.DataObject) -> None:
    raw = bytearray(write_archive(entries))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = read_archive(bytes(raw))
    except MalformedArchive:
        return
    assert read != entries and write_archive(read) == bytes(raw)


@pytest.mark.promise("P-limits")
def test_limits_hold_while_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArchiveTooLarge):
        read_archive(write_archive({f"{number:04}": b"" for number in range(MAX_ENTRIES + 1)}))
    assert len(read_archive(write_archive({f"{number:04}": b"" for number in range(MAX_ENTRIES)}))) == MAX_ENTRIES
    monkeypatch.setattr("palyra.skills.package.artifact.MAX_ARTIFACT_BYTES", 100)
    with pytest.raises(ArchiveTooLarge):
        read_archive(write_archive({"a": b"x" * 100}))


@pytest.mark.parametrize("raw", [b"", b"PK", b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18, b"\x7fELF" * 10])
def test_what_is_no_archive_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedArchive):
        read_archive(raw)
