"""The archive of a backup, as it is written and as an attacker would write it."""

import gzip
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fakes.small_state import make_state
from palyra.backup.archive import BackupExists, UnreadableBackup, read_backup, write_backup
from palyra.backup.manifest import FORMAT, HEADER_NAME, BackupChanged, BackupIncomplete, BadEntry, UnknownBackupFormat
from palyra.signing.dsse import UnknownKey, Verifier
from palyra.signing.ed25519 import Ed25519Signer

SIGNER = Ed25519Signer.generate()


def write(root: Path, target: Path) -> None:
    write_backup(
        root,
        target,
        keys=True,
        palyra_version="1",
        created_at="2026-01-01T00:00:00.000Z",
        journal_seq=lambda _: 9,
        signer=SIGNER,
    )


class Kept:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def take(self, name: str, chunks: Iterator[bytes]) -> None:
        self.files[name] = b"".join(chunks)

    def own_keys(self) -> Sequence[Verifier]:
        return [SIGNER.verifier()]


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    target = tmp_path / "backup"
    write(make_state(tmp_path / "state"), target)
    return target


def entries(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as tar:
        return [(entry, (tar.extractfile(entry) or io.BytesIO()).read()) for entry in tar]


def rewrite(path: Path, content: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for entry, body in content:
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return path


def named(name: str, body: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, "/etc/passwd" if kind != tarfile.REGTYPE else ""
    return entry, b"" if kind != tarfile.REGTYPE else body


def test_what_was_written_is_read(backup: Path, tmp_path: Path) -> None:
    kept = Kept()
    manifest = read_backup(backup, kept, None)
    assert (manifest.format, manifest.journal_seq, manifest.keys) == (FORMAT, 9, True)
    assert kept.files["signing.key"] == b"signing.key" and {one.name for one in manifest.files} == kept.files.keys()
    assert backup.stat().st_mode & 0o777 == 0o600
    assert {one.name for one in tmp_path.iterdir()} == {"backup", "state"}


def test_a_backup_replaces_nothing(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupExists):
        write(tmp_path / "state", backup)


def test_another_key_than_the_trusted_one_is_refused(backup: Path) -> None:
    with pytest.raises(UnknownKey):
        read_backup(backup, Kept(), [Ed25519Signer.generate().verifier()])


@pytest.mark.promise("P-backup")
def test_a_file_that_was_cut_off_anywhere_is_refused(backup: Path) -> None:
    whole = backup.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 23)):
        backup.write_bytes(whole[:length])
        with pytest.raises((BackupIncomplete, BadEntry)):
            read_backup(backup, Kept(), None)


def test_a_changed_missing_or_added_file_is_refused(backup: Path) -> None:
    whole = entries(backup)
    at = next(number for number, (entry, _) in enumerate(whole) if entry.name == "signing.pub")
    for content, error in (
        ([*whole[:at], (whole[at][0], b"changed"), *whole[at + 1 :]], BackupChanged),
        ([*whole[:at], *whole[at + 1 :]], BackupIncomplete),
        ([*whole[:at], named("extra"), *whole[at:]], BackupChanged),
        (whole[:-1], BackupIncomplete),
    ):
        with pytest.raises(error):
            read_backup(rewrite(backup, content), Kept(), None)


@pytest.mark.promise("P-backup")
@pytest.mark.parametrize(
    "entry",
    [
        named("../escape"),
        named("/etc/cron.d/x"),
        named("link", kind=tarfile.SYMTYPE),
        named("hard", kind=tarfile.LNKTYPE),
        named("device", kind=tarfile.CHRTYPE),
        named("signing.pub"),
        named(HEADER_NAME),
    ],
    ids=lambda entry: entry[0].name,
)
def test_entries_that_no_backup_has_are_refused_before_they_are_written(
    backup: Path, entry: tuple[tarfile.TarInfo, bytes]
) -> None:
    kept = Kept()
    whole = entries(backup)
    before = len(whole) - 2
    with pytest.raises(BadEntry):
        read_backup(rewrite(backup, [*whole[:before], entry, *whole[before:]]), kept, None)
    assert kept.files.keys() <= {name.name for name, _ in whole}


def test_other_formats_and_other_files_are_refused(backup: Path, tmp_path: Path) -> None:
    whole = entries(backup)
    with pytest.raises(UnknownBackupFormat):
        read_backup(rewrite(backup, [(whole[0][0], b"palyra.backup/9"), *whole[1:]]), Kept(), None)
    (tmp_path / "text").write_bytes(b"hello")
    with pytest.raises(BackupIncomplete):
        read_backup(tmp_path / "text", Kept(), None)
    (tmp_path / "gz").write_bytes(gzip.compress(b"hello" * 1000))
    with pytest.raises(BackupIncomplete):
        read_backup(tmp_path / "gz", Kept(), None)
    with pytest.raises(UnreadableBackup):
        read_backup(tmp_path / "none", Kept(), None)
