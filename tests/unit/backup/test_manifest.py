"""The list of a backup's contents."""

import msgspec
import pytest

from palyra.backup.manifest import (
    FORMAT,
    BackupChanged,
    BackupFile,
    BackupIncomplete,
    BadEntry,
    Manifest,
    UnknownBackupFormat,
    parse_manifest,
    require_same,
    require_signed,
    statement_about,
)

ONE = BackupFile(name="palyra.db", size=3, sha256="00" * 32)
TWO = BackupFile(name="signing.pub", size=4, sha256="11" * 32)


def listing(*files: BackupFile, version: str = FORMAT) -> Manifest:
    return Manifest(
        format=version, palyra_version="1", created_at="2026-01-01T00:00:00.000Z", journal_seq=7, keys=True, files=files
    )


def test_it_comes_back_as_it_was_and_sums_up() -> None:
    manifest = listing(ONE, TWO)
    assert parse_manifest(msgspec.json.encode(manifest)) == manifest
    assert (manifest.summary()["files"], manifest.summary()["bytes"]) == (2, 7)


def test_another_version_a_climbing_name_a_doubled_one_and_nonsense_are_refused() -> None:
    with pytest.raises(UnknownBackupFormat):
        parse_manifest(msgspec.json.encode(listing(ONE, version="palyra.backup/2")))
    for files in ((msgspec.structs.replace(ONE, name="../x"),), (ONE, ONE)):
        with pytest.raises(BadEntry):
            parse_manifest(msgspec.json.encode(listing(*files)))
    for nonsense in (b"{", b'{"format": "\xff"}', b'{"format": ' + b"[" * 100_000):
        with pytest.raises(BadEntry):
            parse_manifest(nonsense)


def test_exactly_the_listed_files_count() -> None:
    both = {ONE.name: ONE, TWO.name: TWO}
    require_same(listing(ONE, TWO), both)
    with pytest.raises(BackupIncomplete, match="is missing"):
        require_same(listing(ONE, TWO), {ONE.name: ONE})
    with pytest.raises(BackupChanged, match="not in its list"):
        require_same(listing(ONE), both)
    with pytest.raises(BackupChanged, match="not what it was"):
        require_same(listing(ONE), {ONE.name: msgspec.structs.replace(ONE, size=4)})


def test_a_signature_is_about_one_list() -> None:
    require_signed(b"a list", statement_about(b"a list"))
    with pytest.raises(BackupChanged):
        require_signed(b"another", statement_about(b"a list"))
