"""``palyra token`` and ``palyra vault``: API tokens, and secrets that agents can use and never see.

A secret comes from a prompt, standard input, a file or a descriptor, and never from the command line, where every
process of the machine could read it.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.cli.terminal import read_file, read_stdin
from palyra.errors import Denied, InvalidInput
from palyra.secret import Secret
from palyra.visible_text import escape


@click.group()
def token() -> None:
    """Manage API tokens, each bound to a principal."""


@token.command("create")
@click.option("--principal", required=True, metavar="PRINCIPAL", help="For whom: agent:NAME or user:NAME.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="What it may do (call, operate); repeatable.")
@click.option("--ttl", type=click.IntRange(min=1), metavar="SECONDS", help="How long it works; without, until revoked.")
@click.option("--label", metavar="TEXT", help="A name to find it by.")
@click.option("--run-id", metavar="RUN", help="Let it work in this run only.")
@pass_invocation
def create(
    invocation: Invocation,
    principal: str,
    scopes: tuple[str, ...],
    ttl: int | None,
    label: str | None,
    run_id: str | None,
) -> None:
    """Make a token and print it. It is shown this once."""
    with open_client(invocation) as client:
        made = client.create_token(principal, scopes=scopes or None, ttl_seconds=ttl, label=label, run_id=run_id)
    invocation.output.note(
        f"token {escape(made.view.token_id)} for {escape(made.view.principal)}; it is not shown again"
    )
    # The one place where a token is meant to be seen.
    invocation.output.data({**made.view.document, "token": made.token.reveal()}, lambda data: escape(data["token"]))


@token.command("list")
@pass_invocation
def list_tokens(invocation: Invocation) -> None:
    """List tokens, without their secrets."""
    with open_client(invocation) as client:
        found = client.tokens()
    rows = [
        (
            one.token_id,
            one.principal,
            ", ".join(one.scopes),
            one.label or "",
            f"revoked {one.revoked_at}" if one.revoked_at else f"until {one.expires_at or 'revoked'}",
        )
        for one in found
    ]
    invocation.output.listing("tokens", found, ("token", "principal", "scopes", "label", "works"), rows)


@token.command("revoke")
@click.argument("token_id")
@pass_invocation
def revoke(invocation: Invocation, token_id: str) -> None:
    """End a token at once."""
    with open_client(invocation) as client:
        ended = client.revoke_token(token_id)
    invocation.output.data(ended.document, lambda _: f"revoked token {escape(ended.token_id)}")


SOURCES = ("file", "keyring", "passphrase", "environment")


class ValueMissing(InvalidInput):
    code = "cli.value_missing"
    hint = "type it at the prompt, pipe it in, or name --file or --fd; never write it on the command line"


class ValueOnCommandLine(InvalidInput):
    """Its message does not repeat the value."""

    code = "cli.value_on_command_line"
    hint = "it is in your shell's history now: change it where it came from, then pipe the new one in"


class TerminalNeeded(Denied):
    code = "cli.terminal_needed"
    hint = "run it at a terminal: a secret is shown to a person, not to a program"


@click.group()
def vault() -> None:
    """Keep secrets that agents can use and never see.

    A secret is named SCOPE/KEY. The scope is global, principal:agent:NAME, channel:NAME or skill:ID.
    """


@vault.command("put")
@click.argument("ref")
@click.argument("misplaced", nargs=-1, type=click.UNPROCESSED, metavar="")
@click.option("--file", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read the value from FILE.")
@click.option("--fd", type=click.IntRange(0, 1023), metavar="N", help="Read the value from the open descriptor N.")
@pass_invocation
def put(invocation: Invocation, ref: str, misplaced: tuple[str, ...], file: Path | None, fd: int | None) -> None:
    """Store a secret, or a new version of one.

    Without --file or --fd the value is asked for without an echo, or read from standard input where that is not a
    terminal. The line end after a value of one line is not part of it.
    """
    from palyra.vault.reference import SecretRef

    if misplaced:
        raise ValueOnCommandLine("a value does not go on the command line, where others can read it")
    name = str(SecretRef.parse(ref))
    value = _value(name, file, fd)
    with open_client(invocation) as client:
        kept = client.put_secret(name, value)
    invocation.output.data(kept.document, lambda _: f"{escape(kept.ref)} version {kept.version} is in force")


@vault.command("list")
@click.option("--scope", metavar="SCOPE", help="Only secrets of this scope.")
@pass_invocation
def list_secrets(invocation: Invocation, scope: str | None) -> None:
    """List secrets, without their values."""
    found: list[dict[str, Any]] = []
    with open_client(invocation) as client:
        page = client.secrets(scope)
        found += page.secrets
        while page.next is not None:
            page = client.secrets(scope, after=page.next)
            found += page.secrets
    state = page.vault

    def as_table(_: Any) -> None:
        rows = [
            (one["ref"], one["version"], one["oldest_version"], one["updated_at"], one["updated_by"]) for one in found
        ]
        invocation.output.table(("secret", "version", "oldest kept", "updated", "by"), rows)
        if state.get("rotating_from"):
            invocation.output.note(
                f"a rotation was not finished: {state['waiting']} versions are under the old key; "
                "`palyra vault rotate` goes on with it"
            )

    invocation.output.data({"secrets": found, "vault": state}, as_table)


@vault.command("delete")
@click.argument("ref")
@pass_invocation
def delete(invocation: Invocation, ref: str) -> None:
    """Destroy every version of a secret."""
    with open_client(invocation) as client:
        gone = client.delete_secret(ref)
    invocation.output.data(gone.document, lambda _: f"{escape(gone.ref)} is destroyed")


@vault.command("rotate")
@click.option("--to", type=click.Choice(SOURCES), help="Keep the new key there; default: the setting vault.key_source.")
@pass_invocation
def rotate(invocation: Invocation, to: str | None) -> None:
    """Put all secrets under a new key and destroy the old one.

    Secrets can be used meanwhile. A rotation that was cut off goes on where it stopped. Copies of the database from
    before need the old key: keep it yourself if you want to read them again.
    """
    with open_client(invocation) as client, invocation.output.working("re-wrapping secrets"):
        done = client.rotate_vault(to)
    invocation.output.data(
        done.document,
        lambda _: (
            f"{done.rewrapped} versions are now under {escape(done.key_id)} ({escape(done.key_source)}); "
            f"{escape(done.previous_key_id)} is retired"
        ),
    )


@vault.command("reveal")
@click.argument("ref")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="An earlier version that is still kept.")
@pass_invocation
def reveal(invocation: Invocation, ref: str, version: int | None) -> None:
    """Show a secret's value, where a policy of yours permits it.

    Needs a policy that permits vault.reveal to you, and a person at a terminal who types the secret's name. It is
    recorded.
    """
    from palyra.vault.key_source import NotConfirmed
    from palyra.vault.reference import SecretRef

    name = str(SecretRef.parse(ref))
    typed = _typed_name(name)
    if typed != name:
        raise NotConfirmed(f"the name typed is not {name}")
    with open_client(invocation) as client:
        value = client.reveal_secret(name, confirm=typed, version=version)
    # Asked for, permitted, confirmed and on record.
    invocation.output.data({"ref": name, "value": value.reveal()}, lambda data: str(data["value"]))


def _typed_name(name: str) -> str:
    """Read a name from the terminal itself: redirected input does not confirm anything."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        raise TerminalNeeded("there is no terminal to confirm this on") from None
    with open(terminal, "r+b", buffering=0) as tty:
        tty.write(f"This shows the secret {name}. Type its name to go on: ".encode())
        typed = bytearray()
        while not typed.endswith(b"\n") and len(typed) <= len(name) + 2:
            read = tty.read(1)
            if not read:
                break
            typed += read
    return typed.decode("utf-8", "replace").strip()


def _value(name: str, file: Path | None, fd: int | None) -> Secret:
    from palyra.vault.limits import MAX_VALUE_BYTES

    # A line end may come on top of the largest value.
    most = MAX_VALUE_BYTES + 2
    if file is not None and fd is not None:
        raise click.UsageError("--file and --fd exclude each other")
    if file is not None:
        raw = read_file(file, most)
    elif fd is not None:
        raw = read_file(Path(f"/dev/fd/{fd}"), most)
    elif sys.stdin.isatty():
        import getpass

        raw = getpass.getpass(f"Value of {name}: ").encode("utf-8", "surrogateescape")
    else:
        raw = read_stdin(most)
    return Secret(_text(raw))


def _text(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        # The error's own words would show a part of the value.
        raise ValueMissing("the value is not UTF-8 text") from None
    line = text.removesuffix("\n").removesuffix("\r")
    text = text if "\n" in line else line
    if not text:
        raise ValueMissing("the value is empty")
    return text
