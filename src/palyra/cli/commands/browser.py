"""``palyra browser open|navigate|snapshot|act|screenshot``: what an agent does, done by a person at a terminal.

An action takes a few words: ``click e12``, ``type css=#name anna``, ``wait Welcome``.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from palyra.cli.commands.call import approve_command, milliseconds, wait_option
from palyra.cli.invocation import Invocation, open_client, pass_invocation, tell_of_newer_settings
from palyra.cli.terminal import read_text_argument
from palyra.errors import Failed
from palyra.limits import MAX_HTTP_BODY_BYTES
from palyra.visible_text import escape, escape_block, render_fields

if TYPE_CHECKING:
    from palyra.client.client import Client
    from palyra.client.views import CallView

# What follows the verb: an element, then values under these names.
_FORMS: Final[dict[str, tuple[str, ...]]] = {
    "click": ("target",),
    "double_click": ("target",),
    "hover": ("target",),
    "scroll": ("target",),
    "type": ("target", "text"),
    "press": ("key",),
    "open_tab": ("url",),
    "navigate": ("url",),
    "evaluate": ("expression",),
    "drag": ("target", "to"),
    "back": (),
    "forward": (),
    "reload": (),
    "switch_tab": ("tab",),
    "close_tab": (),
    "reset_state": (),
}
_ELEMENTS: Final = frozenset(("target", "to"))
# A form that takes any number of values after its element.
_LISTS: Final = {"select": "values", "upload": "paths"}
_OTHER: Final = ("wait", "dialog", *_LISTS)


def spoken_element(text: str) -> str | dict[str, str]:
    """Read a ref, or ``css=``, ``text=`` or ``role=ROLE:NAME``."""
    form, equals, value = text.partition("=")
    if not equals or form not in ("ref", "css", "text", "role"):
        return text
    if form != "role":
        return {form: value}
    role, colon, name = value.partition(":")
    return {"role": role, "name": name} if colon else {"role": role}


def spoken_action(
    words: Sequence[str], *, secret: str | None = None, submit: bool = False, tab: str | None = None
) -> dict[str, Any]:
    verb, *rest = words
    action = _action(verb.replace("-", "_"), rest, secret)
    if secret is not None:
        if verb != "type":
            raise click.UsageError("--secret goes with type.")
        action["secret"] = secret
    if submit:
        action["submit"] = True
    if tab is not None:
        action["tab"] = tab
    return action


def _action(verb: str, rest: list[str], secret: str | None) -> dict[str, Any]:
    if verb == "wait":
        return {"action": "wait_for", "text": " ".join(rest)}
    if verb == "dialog":
        if not rest or rest[0] not in ("accept", "dismiss"):
            raise click.UsageError("A dialog is answered with accept or dismiss, and a text for a prompt.")
        said = {"text": rest[1]} if len(rest) > 1 else {}
        return {"action": "dialog", "accept": rest[0] == "accept", **said}
    if verb in _LISTS:
        if len(rest) < 2:
            raise click.UsageError(f"{verb} needs an element and what to put there.")
        return {"action": verb, "target": spoken_element(rest[0]), _LISTS[verb]: rest[1:]}
    if verb not in _FORMS:
        known = ", ".join(sorted((*_FORMS, *_OTHER)))
        raise click.UsageError(f"{verb!r} is no action; there are {known}.")
    names = _FORMS[verb]
    if verb == "type" and secret is not None:
        names = ("target",)
    if len(rest) != len(names):
        raise click.UsageError(f"{verb} takes {' and '.join(names) or 'nothing more'}.")
    given = {name: spoken_element(word) if name in _ELEMENTS else word for name, word in zip(names, rest, strict=True)}
    return {"action": verb, **given}


_approve_option = click.option(
    "--approve", is_flag=True, help="Approve the call yourself, where it needs a person; it is recorded as yours."
)
_tab_option = click.option("--tab", metavar="TAB", help="A tab; the active one if not given.")


class PictureNotSaved(Failed):
    code = "cli.picture_not_saved"
    hint = "name a file in a folder that you may write to"


@click.command("open")
@click.argument("url", required=False)
@click.option("--host", "hosts", multiple=True, metavar="RULE", help="HOST, HOST:PORT or *.HOST it may reach too.")
@click.option("--any-public-host", is_flag=True, help="Every public host, where browser.any_public_host allows it.")
@click.option("--profile", metavar="NAME", help="A profile whose logins are there, and kept.")
@click.option("--label", metavar="TEXT", help="What people see of it in lists.")
@click.option("--principal", default="agent:cli", show_default=True, help="Whose session it is.")
@click.option("--run-id", metavar="RUN", help="The run it belongs to; a new one if not given.")
@_approve_option
@wait_option
@pass_invocation
def open_session(
    invocation: Invocation,
    url: str | None,
    hosts: tuple[str, ...],
    any_public_host: bool,
    profile: str | None,
    label: str | None,
    principal: str,
    run_id: str | None,
    approve: bool,
    wait: float | None,
) -> None:
    """Open a browser session that reaches the host of URL and every --host, and nothing else.

    A person approves the hosts once. The session's name is printed; the other verbs take it.
    """
    arguments: dict[str, Any] = {"url": url, "profile": profile, "label": label}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    arguments |= {"hosts": list(hosts)} if hosts else {}
    arguments |= {"any_public_host": True} if any_public_host else {}
    with open_client(invocation) as client, invocation.output.working("opening a browser"):
        made = _call(
            invocation, client, "browser.open", arguments, principal=principal, run=run_id, approve=approve, wait=wait
        )
    invocation.output.note(f"reaches {', '.join(map(escape, made.result['hosts']))}; run {escape(made.run_id)}")
    invocation.output.data({**made.result, "run_id": made.run_id}, lambda result: escape(result["session"]))


@click.command("navigate")
@click.argument("session")
@click.argument("where", metavar="URL|back|forward|reload")
@_tab_option
@pass_invocation
def navigate(invocation: Invocation, session: str, where: str, tab: str | None) -> None:
    """Go to URL in SESSION, or back, forward, or load the page again."""
    arguments = {"to": where} if where in ("back", "forward", "reload") else {"url": where}
    made = use_session(invocation, session, "browser.navigate", {**arguments, **({"tab": tab} if tab else {})})
    invocation.output.data(made.result, lambda result: _place(result))


@click.command("snapshot")
@click.argument("session")
@click.option("--form", type=click.Choice(("tree", "text", "dom")), default="tree", show_default=True)
@click.option("--find", metavar="TEXT", help="Only what matches this text.")
@click.option("--interactive", is_flag=True, help="Only what can be clicked, filled in or chosen.")
@_tab_option
@pass_invocation
def snapshot(
    invocation: Invocation, session: str, form: str, find: str | None, interactive: bool, tab: str | None
) -> None:
    """Print the page of SESSION: a tree whose refs the verb act takes, its text, or its markup.

    What it prints was written by the page.
    """
    arguments: dict[str, Any] = {"interactive_only": True} if interactive else {}
    arguments |= {"tab": tab} if tab else {}
    if find is None:
        made = use_session(invocation, session, "browser.snapshot", {**arguments, "form": form})
    else:
        made = use_session(invocation, session, "browser.find", {**arguments, "text": find})
    invocation.output.note(f"{escape(made.result['title'])} at {escape(made.result['url'])}")
    invocation.output.data(made.result, lambda result: escape_block(result["text"]))


@click.command("act")
@click.argument("session")
@click.argument("words", nargs=-1, metavar="[ACTION [ELEMENT] [VALUE]...]")
@click.option("--input", "source", metavar="JSON|@FILE|-", help="One action or a list of them.")
@click.option("--secret", metavar="REF", help="For type: a secret of the vault in place of a text.")
@click.option("--submit", is_flag=True, help="For type: press Enter afterwards.")
@_tab_option
@_approve_option
@wait_option
@pass_invocation
def act(
    invocation: Invocation,
    session: str,
    words: tuple[str, ...],
    source: str | None,
    secret: str | None,
    submit: bool,
    tab: str | None,
    approve: bool,
    wait: float | None,
) -> None:
    """Do something in the page of SESSION.

    \b
    palyra browser act SESSION click e12
    palyra browser act SESSION type 'role=textbox:Name' anna
    palyra browser act SESSION type css=#password --secret global/shop --submit
    palyra browser act SESSION press Enter
    palyra browser act SESSION wait 'Welcome'

    ELEMENT is a ref of a snapshot, css=SELECTOR, text=TEXT or role=ROLE:NAME.
    """
    from palyra.strict_json import parse_strict

    if (source is None) == (not words):
        raise click.UsageError("Give an action in words, or --input.")
    if source is not None:
        given = parse_strict(read_text_argument(source, MAX_HTTP_BODY_BYTES))
        actions = given if isinstance(given, list) else [given]
    else:
        actions = [spoken_action(words, secret=secret, submit=submit, tab=tab)]
    made = use_session(invocation, session, "browser.act", {"actions": actions}, approve=approve, wait=wait)
    invocation.output.data(made.result, lambda result: "\n".join(_place(each) for each in result["outcomes"]))


@click.command("screenshot")
@click.argument("session")
@click.option("--output", "-o", "path", type=click.Path(path_type=Path), required=True, metavar="FILE")
@click.option("--full-page", is_flag=True, help="The whole page, not only what is in view.")
@click.option("--element", metavar="ELEMENT", help="Only this element.")
@click.option("--format", "form", type=click.Choice(("png", "jpeg", "webp", "pdf")), default="png", show_default=True)
@_tab_option
@pass_invocation
def screenshot(
    invocation: Invocation,
    session: str,
    path: Path,
    full_page: bool,
    element: str | None,
    form: str,
    tab: str | None,
) -> None:
    """Save a picture of the page of SESSION to FILE."""

    arguments: dict[str, Any] = {"format": form, "full_page": full_page}
    arguments |= {"tab": tab} if tab else {}
    arguments |= {"target": spoken_element(element)} if element else {}
    made = use_session(invocation, session, "browser.screenshot", arguments)
    result = dict(made.result)
    content = base64.b64decode(result.pop("image_base64", None) or result.pop("pdf_base64", ""))
    try:
        path.write_bytes(content)
    except OSError as error:
        raise PictureNotSaved(f"cannot write {path}: {error.strerror}") from error
    result["file"] = str(path)
    invocation.output.data(result, lambda _: f"{path}: {result['media_type']}, {len(content)} bytes")


def use_session(
    invocation: Invocation,
    session: str,
    tool: str,
    arguments: dict[str, Any],
    *,
    approve: bool = False,
    wait: float | None = None,
) -> "CallView":
    """Make a call in a session's own run, on behalf of its principal."""
    with open_client(invocation) as client, invocation.output.working(tool):
        owned = client.browser_session(session)
        return _call(
            invocation,
            client,
            tool,
            {"session": session, **arguments},
            principal=owned.principal,
            run=owned.run_id or None,
            approve=approve,
            wait=wait,
        )


def _call(
    invocation: Invocation,
    client: "Client",
    tool: str,
    arguments: dict[str, Any],
    *,
    principal: str,
    run: str | None,
    approve: bool,
    wait: float | None,
) -> "CallView":
    from palyra.client.protocol import ApiError, NeedsApprovalError

    def ask(run_id: str | None) -> "CallView":
        return client.call(
            tool,
            arguments,
            principal=principal,
            run_id=run_id,
            channel="cli",
            wait_ms=milliseconds(wait),
        )

    try:
        return ask(run)
    except NeedsApprovalError as needed:
        if approve and needed.approval_id:
            client.approve(needed.approval_id)
            return ask(run or (needed.call.run_id if needed.call is not None else None))
        command = approve_command(invocation, needed.approval_id)
        needed.hint = (
            f"a person can approve it with `{command}`; then give the same command again, or add --approve to"
            " approve it yourself"
        )
        raise
    except ApiError:
        tell_of_newer_settings(invocation)
        raise


def _place(outcome: dict[str, Any]) -> str:
    rows = [
        ("page", f"{escape(outcome['title'])} at {escape(outcome['url'])}"),
        ("status", str(outcome["status"]) if outcome.get("status") else ""),
        ("dialog", escape(json.dumps(outcome["dialog"])) if "dialog" in outcome else ""),
        ("new tabs", ", ".join(escape(tab["tab"]) for tab in outcome.get("new_tabs", ()))),
        ("downloads", ", ".join(map(escape, outcome.get("downloads", ())))),
        ("refused", "\n".join(map(escape, outcome.get("refused", ())))),
        ("value", escape(json.dumps(outcome["value"])) if "value" in outcome else ""),
    ]
    return render_fields(rows)
