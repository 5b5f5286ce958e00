"""``palyra state``: a backup of everything Palyra keeps, made while it runs, and its way back.

Works on the state directory itself, whether or not a daemon runs on it.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from palyra.cli.invocation import Invocation, pass_invocation
from palyra.errors import Unavailable
from palyra.version import VERSION

if TYPE_CHECKING:
    from palyra.backup.manifest import Manifest
    from palyra.backup.restore import Staging
    from palyra.journal.verify import VerifyReport
    from palyra.signing.dsse import Verifier

ACTOR: Final = "palyra-state"
_file = click.Path(path_type=Path, dir_okay=False)
_keys_option = click.option(
    "--public-key", "keys", multiple=True, metavar="FILE", type=_file, help="The signer's public key (PEM)."
)


class StateInUse(Unavailable):
    code = "backup.state_in_use"
    hint = "stop the daemon and the commands that use this state directory, or restore into another --state-dir"


@click.group()
def state() -> None:
    """Back up and restore what Palyra keeps."""


@state.command()
@click.argument("file", type=_file)
@click.option("--without-keys", is_flag=True, help="Leave keys and tokens out: to read, not to go on.")
@pass_invocation
def backup(invocation: Invocation, file: Path, without_keys: bool) -> None:
    """Write everything that is kept into FILE, also while a daemon works.

    In it: the database with the journal, skills, devices, and unless --without-keys says otherwise the keys and tokens
    of the state directory. Never in it: the vault's key, settings, policies and the workspace; keep those as well. The
    file with its keys allows anyone who has it to sign as this daemon: it has mode 0600.
    """
    from palyra.backup.archive import write_backup
    from palyra.clock import SystemClock, rfc3339
    from palyra.signing.ed25519 import Ed25519Signer

    root = invocation.state_dir.root
    with invocation.output.working("backing up"):
        manifest = write_backup(
            root,
            file.absolute(),
            keys=not without_keys,
            palyra_version=VERSION,
            created_at=rfc3339(SystemClock().now_ms()),
            journal_seq=_journal_seq,
            signer=Ed25519Signer.load_or_create(invocation.state_dir.path("signing.key")),
            never=frozenset({invocation.locations.vault_key_file(invocation.settings.vault.key_file)}),
        )
    vault_key = invocation.locations.vault_key_file(invocation.settings.vault.key_file)
    data = {**manifest.summary(), "file": str(file), "vault_key": {"included": False, "file": str(vault_key)}}

    def lines(_: Any) -> str:
        return f"{file}: {_in_words(manifest)}\n{_about_keys(manifest)}\nnot in it: the vault's key ({vault_key})"

    invocation.output.data(data, lines)


@state.command()
@click.argument("file", type=_file)
@_keys_option
@pass_invocation
def verify(invocation: Invocation, file: Path, keys: Sequence[Path]) -> None:
    """Check a backup: every file, its list, the signature, and the journal in it.

    Without --public-key the key in the backup itself is believed: that shows damage, and not that somebody put together
    another one.
    """
    import tempfile

    from palyra.backup.manifest import CHECKPOINT, DATABASE, PUBLIC_KEY

    wanted = frozenset({DATABASE, CHECKPOINT, PUBLIC_KEY})
    with (
        tempfile.TemporaryDirectory(prefix="palyra-verify-") as folder,
        invocation.output.working("verifying"),
        _staged(file, Path(folder), keys, wanted) as (_, manifest, report),
    ):
        pass
    invocation.output.data(
        {**manifest.summary(), "journal": report},
        lambda _: f"sound: {_in_words(manifest)}\n{_about_keys(manifest)}\n{_about_journal(report)}",
    )


@state.command()
@click.argument("file", type=_file)
@click.option("--replace", is_flag=True, help="Take the place of one that is not empty; it is kept aside.")
@_keys_option
@pass_invocation
def restore(invocation: Invocation, file: Path, replace: bool, keys: Sequence[Path]) -> None:
    """Put a backup in the place of the state directory.

    Everything is checked first, the journal too, and a state directory that somebody uses is not touched. The restore
    is recorded in the journal as state.restored.
    """
    from palyra.backup.restore import put_in_place, require_place

    target = invocation.state_path
    require_place(target, replace=replace)
    with (
        invocation.output.working("restoring"),
        _nobody_in(target),
        _staged(file, target.parent, keys, None) as (staging, manifest, report),
    ):
        if manifest.keys:
            _record(staging.path, manifest)
        kept = put_in_place(staging.path, target)
    data = {**manifest.summary(), "state_dir": str(target), "kept": kept and str(kept), "journal": report}

    def lines(_: Any) -> str:
        said = [f"{target}: {_in_words(manifest)}", _about_journal(report), _about_keys(manifest)]
        return "\n".join([*said, *([f"what was there is in {kept}"] if kept else [])])

    invocation.output.data(data, lines)
    if not manifest.keys:
        invocation.output.warning(
            "a daemon does not start on it without its keys: put signing.key back from where you keep it"
        )


def _journal_seq(database: Path) -> int:
    from palyra.store.sqlite.store import SqliteReader

    with SqliteReader(database) as reader:
        return reader.head()[0]


@contextlib.contextmanager
def _staged(
    file: Path, folder: Path, keys: Sequence[Path], only: frozenset[str] | None
) -> "Iterator[tuple[Staging, Manifest, VerifyReport]]":
    """Check all files of the archive in a directory that is removed afterwards unless it was moved away."""
    from palyra.backup.archive import read_backup
    from palyra.backup.restore import Staging
    from palyra.signing.ed25519 import Ed25519Verifier

    verifiers = _verifiers(keys)
    with Staging(folder, Ed25519Verifier.from_pem_file, only) as staging:
        manifest = read_backup(file, staging, verifiers)
        yield staging, manifest, _verified_journal(staging.path, verifiers or staging.own_keys())


def _verifiers(keys: Sequence[Path]) -> "list[Verifier] | None":
    from palyra.signing.ed25519 import Ed25519Verifier

    return [Ed25519Verifier.from_pem_file(path) for path in keys] or None


def _verified_journal(root: Path, verifiers: "Sequence[Verifier]") -> "VerifyReport":
    from palyra.backup.manifest import CHECKPOINT, DATABASE
    from palyra.journal.checkpoint import load_checkpoint
    from palyra.journal.verify import verify_journal
    from palyra.store.sqlite.store import SqliteReader

    copy = root / CHECKPOINT
    anchors = [load_checkpoint(copy)] if copy.exists() else []
    with SqliteReader(root / DATABASE) as reader:
        return verify_journal(reader, verifiers, anchors=anchors)


def _record(root: Path, manifest: "Manifest") -> None:
    """Record the restore in the journal, which does not have the events after the backup any more."""
    from palyra.clock import SystemClock
    from palyra.journal.chain import JournalLog
    from palyra.journal.checkpoint import CHECKPOINT_NAME
    from palyra.journal.redaction import Redactor
    from palyra.signing.ed25519 import Ed25519Signer
    from palyra.store.event import NewEvent
    from palyra.store.sqlite.store import DATABASE_NAME, SqliteStore

    clock = SystemClock()
    log = JournalLog(
        clock=clock,
        redactor=Redactor(),
        signer=Ed25519Signer.load_or_create(root / "signing.key"),
        checkpoint_path=root / CHECKPOINT_NAME,
    )
    store = SqliteStore.open(root / DATABASE_NAME, clock=clock, log=log)
    try:
        payload = {"backup_created_at": manifest.created_at, "journal_seq": manifest.journal_seq}
        store.transact_blocking(lambda tx: tx.append(NewEvent(kind="state.restored", actor=ACTOR, payload=payload)))
    finally:
        store.close()


@contextlib.contextmanager
def _nobody_in(target: Path) -> Iterator[None]:
    """Hold the daemon's lock of the existing directory, so that none starts meanwhile."""
    from palyra.config.state_dir import LOCK_FILE, DaemonRunning, InstanceRegistry, take_daemon_lock

    if not target.is_dir() or not any(target.iterdir()):
        yield
        return
    try:
        lock = take_daemon_lock(target / LOCK_FILE)
    except DaemonRunning as error:
        raise StateInUse(f"a daemon runs on {target}") from error
    try:
        if InstanceRegistry(target / "instances").live():
            raise StateInUse(f"commands are at work on {target}")
        yield
    finally:
        lock.release(remove=False)


def _in_words(manifest: "Manifest") -> str:
    return (
        f"{len(manifest.files)} files, {manifest.bytes:,} bytes, the journal up to event {manifest.journal_seq}, "
        f"made {manifest.created_at} by Palyra {manifest.palyra_version}"
    )


def _about_keys(manifest: "Manifest") -> str:
    return "keys and tokens: in it; keep the file as you keep them" if manifest.keys else "keys and tokens: left out"


def _about_journal(report: "VerifyReport") -> str:
    return f"journal: sound, {report.events} events, sealed up to {report.sealed_through}"
