"""``palyra skill trust``: whose keys may sign skills here."""

from pathlib import Path
from typing import Any

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.skill_review import NAME_A_KEY
from palyra.cli.terminal import command_line, shown
from palyra.limits import KIB

MAX_STATEMENT_BYTES = 16 * KIB
_NAME_A_STATEMENT = "name the file with what `palyra skill trust hand-over` printed"


@click.group("trust")
def trust() -> None:
    """Say whose keys are trusted to sign skills."""


@trust.command("list")
@json_option
@pass_invocation
def list_keys(invocation: Invocation) -> None:
    """List publishers, their keys, those taken off the list or unreadable included, and revoked keys."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.publishers()

    def as_table(_: Any) -> None:
        rows = [(one["publisher"], one["key_id"], one["state"], one["source"], one["added_at"]) for one in found.keys]
        rows += [(one["publisher"], one["key_id"], "unreadable", "", "") for one in found.unreadable]
        invocation.output.table(("publisher", "key", "state", "source", "since"), rows)
        for one in found.unreadable:
            invocation.output.text(_unreadable(one))
        for one in found.revoked:
            invocation.output.text(f"revoked: {shown(one['key_id'])} {shown(one['reason'])}".rstrip())

    invocation.output.data(found.document, as_table)


def _unreadable(key: dict[str, Any]) -> str:
    clear = command_line("palyra", "skill", "trust", "remove", key["publisher"], key["key_id"])
    return (
        f"unreadable: {shown(key['key_id'])} of {shown(key['publisher'])}: {shown(key['problem'])}\n"
        "  It counts for nothing. Find out who changed the database. `palyra skill trust add` renews it; to clear it:\n"
        f"  {clear}"
    )


@trust.command("add")
@click.argument("publisher")
@click.argument("key_file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
@pass_invocation
def add(invocation: Invocation, publisher: str, key_file: Path) -> None:
    """Trust a publisher's public key, a PEM file. Make sure that it is theirs: everything else rests on it."""
    from palyra.cli.door import open_client
    from palyra.cli.sources import read_file
    from palyra.signing.ed25519 import MAX_KEY_FILE_BYTES, Ed25519Verifier
    from palyra.skills.scaffold import require_publisher

    require_publisher(publisher)
    raw = Ed25519Verifier.from_pem(read_file(key_file, MAX_KEY_FILE_BYTES, hint=NAME_A_KEY)).public_key()
    with open_client(invocation) as client:
        added = client.add_publisher(publisher, raw)
        keys = [one for one in client.publishers().keys if one["publisher"] == publisher]
    others = [one["key_id"] for one in keys if one["state"] == "active" and one["key_id"] != added.key_id]
    invocation.output.data(
        {**added.document, "other_keys": others},
        lambda _: f"{shown(added.publisher)} may sign with {shown(added.key_id)}",
    )
    if others:
        invocation.output.warning(_other_keys(publisher, others))


def _other_keys(publisher: str, others: list[str]) -> str:
    """A new key beside the old ones is rarely what somebody wants who has lost a key or changed it."""
    remove = "\n".join(f"  {command_line('palyra', 'skill', 'trust', 'remove', publisher, each)}" for each in others)
    still = "the one from before still may" if len(others) == 1 else "those from before still may"
    return f"{shown(publisher)} has {len(others) + 1} keys now, and {still} sign. To end that:\n{remove}"


@trust.command("remove")
@click.argument("publisher")
@click.argument("key_id")
@json_option
@pass_invocation
def remove(invocation: Invocation, publisher: str, key_id: str) -> None:
    """Take a key off the list. What it signed before stays installed; to end that too, revoke it."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        gone = client.remove_publisher(publisher, key_id)
    invocation.output.data(gone.document, lambda _: f"{shown(gone.key_id)} is not {shown(gone.publisher)}'s any more")


@trust.command("rotate")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
@pass_invocation
def rotate(invocation: Invocation, file: Path) -> None:
    """Accept a publisher's new key from a statement that their old key has signed."""
    from palyra.cli.door import open_client
    from palyra.cli.sources import SourceUnreadable, read_file

    try:
        statement = read_file(file, MAX_STATEMENT_BYTES, hint=_NAME_A_STATEMENT).decode("utf-8")
    except UnicodeDecodeError:
        raise SourceUnreadable(f"{file} is not a statement: it is not text", hint=_NAME_A_STATEMENT) from None
    with open_client(invocation) as client:
        added = client.rotate_publisher(statement)
    invocation.output.data(
        added.document, lambda _: f"{shown(added.publisher)} signs with {shown(added.key_id)} from now on"
    )


@trust.command("hand-over")
@click.argument("publisher")
@click.argument("old_key", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("new_public_key", type=click.Path(path_type=Path, dir_okay=False))
@json_option
@pass_invocation
def hand_over(invocation: Invocation, publisher: str, old_key: Path, new_public_key: Path) -> None:
    """Print the statement that gives a publisher a new key: for `trust rotate` of those who trust the old one."""
    from palyra.signing.ed25519 import Ed25519Signer, Ed25519Verifier
    from palyra.skills.rotation import make_rotation

    new = Ed25519Verifier.from_pem_file(new_public_key).public_key()
    statement = make_rotation(publisher, Ed25519Signer.load_or_create(old_key), new).decode("ascii")
    invocation.output.data({"statement": statement}, lambda _: statement)


@trust.command("revoke")
@click.argument("key_id")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@json_option
@pass_invocation
def revoke(invocation: Invocation, key_id: str, reason: str | None) -> None:
    """End a key for good, such as a stolen one. What is in use under it is disabled."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        disabled = client.revoke_key(key_id, reason=reason)
    invocation.output.data(
        {"key_id": key_id, "disabled": [one.document for one in disabled]},
        lambda _: "\n".join(
            [
                f"{shown(key_id)} is revoked",
                *(f"{shown(one.skill_id)} {shown(one.version)} is {shown(one.state)}" for one in disabled),
            ]
        ),
    )
