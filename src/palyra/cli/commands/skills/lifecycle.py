"""Commands that change a skill, from install to purge, and the keys that are trusted to sign skills."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from palyra.cli.commands.skills.review import NAME_A_KEY, NAME_AN_ARCHIVE, ArchiveFile, render_cuts, render_review
from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.cli.terminal import SourceUnreadable, command_line, read_file, read_text_argument
from palyra.errors import Denied, InvalidInput
from palyra.limits import KIB
from palyra.visible_text import escape, spell_json

if TYPE_CHECKING:
    from palyra.client.admin_operations import Change
    from palyra.client.client import Client
    from palyra.client.views import SkillVersionView


class NotReviewed(InvalidInput):
    code = "cli.not_reviewed"
    hint = "look at the version with `palyra skill show SKILL`, then name its digest with --digest"


class NotApproved(Denied):
    code = "cli.not_approved"
    hint = "nothing was changed: approve it later, or `palyra skill remove SKILL --version VERSION`"


class ConfigurationNotAnObject(InvalidInput):
    code = "cli.configuration_not_an_object"
    hint = 'a configuration is a JSON object, such as {"greeting": "hi"}'


@click.command("install")
@click.argument("file", type=ArchiveFile())
@pass_invocation
def install(invocation: Invocation, file: Path) -> None:
    """Put an archive into quarantine, after signature, trust and audit. Nothing of it runs before it is approved."""
    from palyra.skills.limits import MAX_ARTIFACT_BYTES

    archive = read_file(file, MAX_ARTIFACT_BYTES, hint=NAME_AN_ARCHIVE)
    with open_client(invocation) as client, invocation.output.working("auditing"):
        installed = client.install_skill(archive)

    def as_text(_: Any) -> str:
        lines = [render_review(installed.document)]
        if installed.state == "quarantined":
            words = (installed.skill_id, installed.version, "--digest", installed.digest)
            command = command_line("palyra", "skill", "approve", *words)
            lines += ["", "It waits for a person. To put it in use:", f"  {command}"]
        return "\n".join(lines)

    invocation.output.data(installed.document, as_text)


@click.command("approve")
@click.argument("skill_id")
@click.argument("version")
@click.option("--digest", metavar="SHA256", help="The digest that you have reviewed.")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@pass_invocation
def approve(invocation: Invocation, skill_id: str, version: str, digest: str | None, reason: str | None) -> None:
    """Put exactly one version of a skill in use.

    Without --digest the review is shown at a terminal first, and that version is approved after your confirmation.
    """
    with open_client(invocation) as client:
        reviewed = _reviewed(invocation, client, skill_id, version) if digest is None else digest
        approved = client.approve_skill(skill_id, version, reviewed, reason=reason)
    invocation.output.data(approved.document, lambda _: _state_line(approved))
    if digest is not None and approved.gets_less:
        # Who was shown the review has seen them.
        less = render_cuts(approved.gets_less).replace("\n", "\n  ")
        invocation.output.warning(f"the settings give {escape(skill_id)} less than it asks for:\n  {less}")


def _reviewed(invocation: Invocation, client: "Client", skill_id: str, version: str) -> str:
    """Show the review, and return the digest that the person has confirmed."""
    waiting = [
        one
        for one in client.skill(skill_id).versions
        if one.get("version") == version and one.get("state") == "quarantined"
    ]
    if not waiting:
        known = [f"{one.get('version')} is {one.get('state')}" for one in client.skill(skill_id).versions]
        raise NotReviewed(
            f"no {skill_id} {version} waits for approval: {', '.join(known) or 'there is no version of it'}",
            hint=f"`palyra skill show {skill_id}` tells more",
        )
    if invocation.output.json or not sys.stdin.isatty():
        raise NotReviewed(f"which {skill_id} {version} is meant? There is no --digest")
    invocation.output.note(render_review(waiting[0]))
    if not click.confirm("Put this version in use?", default=False, err=True):
        raise NotApproved(f"{skill_id} {version} is not put in use: it stays in quarantine")
    return str(waiting[0]["digest"])


def _change_command(name: str, help_text: str, *, versioned: bool) -> click.Command:
    def change(invocation: Invocation, skill_id: str, reason: str | None, version: str | None = None) -> None:
        with open_client(invocation) as client:
            changed = client.change_skill(skill_id, cast("Change", name), version=version, reason=reason)
        invocation.output.data(changed.document, lambda _: _state_line(changed))

    command: Any = pass_invocation(change)
    command = click.option("--reason", metavar="TEXT", help="Why, for the record.")(command)
    if versioned:
        command = click.option("--version", metavar="VERSION", help="The version meant.")(command)
    command = click.argument("skill_id")(command)
    made: click.Command = click.command(name, help=help_text)(command)
    return made


disable = _change_command("disable", "Stop the version in use; it stays at hand.", versioned=False)
enable = _change_command("enable", "Let the disabled version run again.", versioned=False)
quarantine = _change_command(
    "quarantine", "Take a version out of use (the one in use, or --version) until it is approved again.", versioned=True
)
rollback = _change_command(
    "rollback", "Go back to the version that was in use before, or to --version.", versioned=True
)


@click.command("remove")
@click.argument("skill_id")
@click.option("--version", metavar="VERSION", help="Only this version.")
@pass_invocation
def remove(invocation: Invocation, skill_id: str, version: str | None) -> None:
    """Remove a version, or the whole skill. Its id stays its publisher's; what it stored stays until `purge`."""
    with open_client(invocation) as client:
        removed = client.remove_skill(skill_id, version=version)
    invocation.output.data(
        {"removed": [one.document for one in removed]}, lambda _: "\n".join(_state_line(one) for one in removed)
    )


@click.command("purge")
@click.argument("skill_id")
@pass_invocation
def purge(invocation: Invocation, skill_id: str) -> None:
    """Erase what a removed skill has stored. It cannot be undone; the journal keeps that it was done."""
    with open_client(invocation) as client:
        erased = client.purge_skill(skill_id)
    invocation.output.data(
        erased.document, lambda _: f"{skill_id}: {erased.values} values with {erased.bytes} bytes were erased"
    )


@click.command("configure")
@click.argument("skill_id")
@click.argument("configuration", metavar="JSON|@FILE|-")
@click.option("--version", metavar="VERSION", help="Of this version; default: the one in use, else the newest.")
@pass_invocation
def configure(invocation: Invocation, skill_id: str, configuration: str, version: str | None) -> None:
    """Set a skill's configuration, judged by the schema of the version. Secrets go into the vault instead."""
    from palyra.skills.limits import MAX_CONFIGURATION_BYTES
    from palyra.strict_json import parse_strict

    value = parse_strict(read_text_argument(configuration, MAX_CONFIGURATION_BYTES))
    if not isinstance(value, dict):
        raise ConfigurationNotAnObject("this is JSON, but not an object")
    with open_client(invocation) as client:
        whole = client.configure_skill(skill_id, value, version=version)
    invocation.output.data({"configuration": whole}, lambda _: spell_json(whole))


def _state_line(version: "SkillVersionView") -> str:
    return f"{escape(version.skill_id)} {escape(version.version)} is {escape(version.state)} ({escape(version.digest)})"


MAX_STATEMENT_BYTES = 16 * KIB
_NAME_A_STATEMENT = "name the file with what `palyra skill trust hand-over` printed"


@click.group("trust")
def trust() -> None:
    """Say whose keys are trusted to sign skills."""


@trust.command("list")
@pass_invocation
def list_keys(invocation: Invocation) -> None:
    """List publishers, their keys, those taken off the list or unreadable included, and revoked keys."""
    with open_client(invocation) as client:
        found = client.publishers()

    def as_table(_: Any) -> None:
        rows = [(one["publisher"], one["key_id"], one["state"], one["source"], one["added_at"]) for one in found.keys]
        rows += [(one["publisher"], one["key_id"], "unreadable", "", "") for one in found.unreadable]
        invocation.output.table(("publisher", "key", "state", "source", "since"), rows)
        for one in found.unreadable:
            invocation.output.text(_unreadable(one))
        for one in found.revoked:
            invocation.output.text(f"revoked: {escape(one['key_id'])} {escape(one['reason'])}".rstrip())

    invocation.output.data(found.document, as_table)


def _unreadable(key: dict[str, Any]) -> str:
    clear = command_line("palyra", "skill", "trust", "remove", key["publisher"], key["key_id"])
    return (
        f"unreadable: {escape(key['key_id'])} of {escape(key['publisher'])}: {escape(key['problem'])}\n"
        "  It counts for nothing. Find out who changed the database. `palyra skill trust add` renews it; to clear it:\n"
        f"  {clear}"
    )


@trust.command("add")
@click.argument("publisher")
@click.argument("key_file", type=click.Path(path_type=Path, dir_okay=False))
@pass_invocation
def add(invocation: Invocation, publisher: str, key_file: Path) -> None:
    """Trust a publisher's public key, a PEM file. Make sure that it is theirs: everything else rests on it."""
    from palyra.signing.ed25519 import MAX_KEY_FILE_BYTES, Ed25519Verifier
    from palyra.skills.build.project import require_publisher

    require_publisher(publisher)
    raw = Ed25519Verifier.from_pem(read_file(key_file, MAX_KEY_FILE_BYTES, hint=NAME_A_KEY)).public_key()
    with open_client(invocation) as client:
        added = client.add_publisher(publisher, raw)
        keys = [one for one in client.publishers().keys if one["publisher"] == publisher]
    others = [one["key_id"] for one in keys if one["state"] == "active" and one["key_id"] != added.key_id]
    invocation.output.data(
        {**added.document, "other_keys": others},
        lambda _: f"{escape(added.publisher)} may sign with {escape(added.key_id)}",
    )
    if others:
        invocation.output.warning(_other_keys(publisher, others))


def _other_keys(publisher: str, others: list[str]) -> str:
    """Warn of old keys: a person who lost or changed a key rarely wants them to stay."""
    remove = "\n".join(f"  {command_line('palyra', 'skill', 'trust', 'remove', publisher, each)}" for each in others)
    still = "the one from before still may" if len(others) == 1 else "those from before still may"
    return f"{escape(publisher)} has {len(others) + 1} keys now, and {still} sign. To end that:\n{remove}"


@trust.command("remove")
@click.argument("publisher")
@click.argument("key_id")
@pass_invocation
def remove_publisher(invocation: Invocation, publisher: str, key_id: str) -> None:
    """Take a key off the list. What it signed before stays installed; to end that too, revoke it."""
    with open_client(invocation) as client:
        gone = client.remove_publisher(publisher, key_id)
    invocation.output.data(gone.document, lambda _: f"{escape(gone.key_id)} is not {escape(gone.publisher)}'s any more")


@trust.command("rotate")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@pass_invocation
def rotate(invocation: Invocation, file: Path) -> None:
    """Accept a publisher's new key from a statement that their old key has signed."""
    try:
        statement = read_file(file, MAX_STATEMENT_BYTES, hint=_NAME_A_STATEMENT).decode("utf-8")
    except UnicodeDecodeError:
        raise SourceUnreadable(f"{file} is not a statement: it is not text", hint=_NAME_A_STATEMENT) from None
    with open_client(invocation) as client:
        added = client.rotate_publisher(statement)
    invocation.output.data(
        added.document, lambda _: f"{escape(added.publisher)} signs with {escape(added.key_id)} from now on"
    )


@trust.command("hand-over")
@click.argument("publisher")
@click.argument("old_key", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("new_public_key", type=click.Path(path_type=Path, dir_okay=False))
@pass_invocation
def hand_over(invocation: Invocation, publisher: str, old_key: Path, new_public_key: Path) -> None:
    """Print the statement that gives a publisher a new key: for `trust rotate` of those who trust the old one."""
    from palyra.signing.ed25519 import Ed25519Signer, Ed25519Verifier
    from palyra.skills.trust.publisher_keys import make_rotation

    new = Ed25519Verifier.from_pem_file(new_public_key).public_key()
    statement = make_rotation(publisher, Ed25519Signer.load_or_create(old_key), new).decode("ascii")
    invocation.output.data({"statement": statement}, lambda _: statement)


@trust.command("revoke")
@click.argument("key_id")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@pass_invocation
def revoke(invocation: Invocation, key_id: str, reason: str | None) -> None:
    """End a key for good, such as a stolen one. What is in use under it is disabled."""
    with open_client(invocation) as client:
        disabled = client.revoke_key(key_id, reason=reason)
    invocation.output.data(
        {"key_id": key_id, "disabled": [one.document for one in disabled]},
        lambda _: "\n".join(
            [
                f"{escape(key_id)} is revoked",
                *(f"{escape(one.skill_id)} {escape(one.version)} is {escape(one.state)}" for one in disabled),
            ]
        ),
    )
