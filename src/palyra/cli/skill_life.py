"""What changes a skill's life: install, approve, disable, enable, quarantine, rollback, remove, purge, configure."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.skill_review import NAME_AN_ARCHIVE, ArchiveFile, render_cuts, render_review
from palyra.cli.terminal import command_line, pretty_json, shown
from palyra.errors import Denied, InvalidInput

if TYPE_CHECKING:
    from palyra.client.client import Client
    from palyra.client.skill_operations import Change
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
@json_option
@pass_invocation
def install(invocation: Invocation, file: Path) -> None:
    """Put an archive into quarantine, after signature, trust and audit. Nothing of it runs before it is approved."""
    from palyra.cli.door import open_client
    from palyra.cli.sources import read_file
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
@json_option
@pass_invocation
def approve(invocation: Invocation, skill_id: str, version: str, digest: str | None, reason: str | None) -> None:
    """Put exactly one version of a skill in use.

    Without --digest the review is shown at a terminal first, and what was shown is approved after a yes.
    """
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        reviewed = _reviewed(invocation, client, skill_id, version) if digest is None else digest
        approved = client.approve_skill(skill_id, version, reviewed, reason=reason)
    invocation.output.data(approved.document, lambda _: _state_line(approved))
    if digest is not None and approved.gets_less:
        # Who was shown the review has seen them.
        less = render_cuts(approved.gets_less).replace("\n", "\n  ")
        invocation.output.warning(f"the settings give {shown(skill_id)} less than it asks for:\n  {less}")


def _reviewed(invocation: Invocation, client: "Client", skill_id: str, version: str) -> str:
    """The digest of what a person has just seen and said yes to."""
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
        from palyra.cli.door import open_client

        with open_client(invocation) as client:
            changed = client.change_skill(skill_id, cast("Change", name), version=version, reason=reason)
        invocation.output.data(changed.document, lambda _: _state_line(changed))

    command: Any = json_option(pass_invocation(change))
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
@json_option
@pass_invocation
def remove(invocation: Invocation, skill_id: str, version: str | None) -> None:
    """Remove a version, or the whole skill. Its id stays its publisher's; what it stored stays until `purge`."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        removed = client.remove_skill(skill_id, version=version)
    invocation.output.data(
        {"removed": [one.document for one in removed]}, lambda _: "\n".join(_state_line(one) for one in removed)
    )


@click.command("purge")
@click.argument("skill_id")
@json_option
@pass_invocation
def purge(invocation: Invocation, skill_id: str) -> None:
    """Erase what a removed skill has stored. It cannot be undone; the journal keeps that it was done."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        erased = client.purge_skill(skill_id)
    invocation.output.data(
        erased.document, lambda _: f"{skill_id}: {erased.values} values with {erased.bytes} bytes were erased"
    )


@click.command("configure")
@click.argument("skill_id")
@click.argument("configuration", metavar="JSON|@FILE|-")
@click.option("--version", metavar="VERSION", help="Of this version; default: the one in use, else the newest.")
@json_option
@pass_invocation
def configure(invocation: Invocation, skill_id: str, configuration: str, version: str | None) -> None:
    """Set a skill's configuration, judged by the schema of the version. Secrets go into the vault instead."""
    from palyra.cli.door import open_client
    from palyra.cli.sources import read_text_argument
    from palyra.skills.limits import MAX_CONFIGURATION_BYTES
    from palyra.strict_json import parse_strict

    value = parse_strict(read_text_argument(configuration, MAX_CONFIGURATION_BYTES))
    if not isinstance(value, dict):
        raise ConfigurationNotAnObject("this is JSON, but not an object")
    with open_client(invocation) as client:
        whole = client.configure_skill(skill_id, value, version=version)
    invocation.output.data({"configuration": whole}, lambda _: pretty_json(whole))


def _state_line(version: "SkillVersionView") -> str:
    return f"{shown(version.skill_id)} {shown(version.version)} is {shown(version.state)} ({shown(version.digest)})"
