"""``palyra browser list|show|close|takeover|handback|downloads|profiles``: what an operator does with browsers."""

from typing import TYPE_CHECKING, Literal

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.clock import rfc3339
from palyra.visible_text import escape, render_fields

if TYPE_CHECKING:
    from palyra.client.views import BrowserSessionView


@click.command("list")
@pass_invocation
def list_sessions(invocation: Invocation) -> None:
    """List the browser sessions: whose they are, where they are, what they may reach."""
    with open_client(invocation) as client:
        found = client.browser_sessions()
    rows = [
        (one.session_id, one.principal, one.state, _at(one), ", ".join(one.hosts), rfc3339(one.ends_ms))
        for one in found
    ]
    invocation.output.listing("sessions", found, ("session", "principal", "state", "at", "reaches", "ends"), rows)


@click.command("show")
@click.argument("session")
@pass_invocation
def show_session(invocation: Invocation, session: str) -> None:
    """Show SESSION: its tabs, what it has used, and every fence around its browser."""
    with open_client(invocation) as client:
        found = client.browser_session(session)
    invocation.output.data(found.document, lambda _: _render(found))


@click.command("close")
@click.argument("session")
@pass_invocation
def close(invocation: Invocation, session: str) -> None:
    """End SESSION. A profile it uses is saved."""
    with open_client(invocation) as client:
        ended = client.change_browser_session(session, "close")
    kept = "its profile is saved" if ended.saved else "nothing of it is kept"
    problem = f" ({ended.problem_code})" if ended.problem_code else ""
    invocation.output.data(ended.document, lambda _: f"{escape(session)} is closed; {kept}{problem}")


@click.command("takeover")
@click.argument("session")
@click.option("--reason", metavar="TEXT", help="Why; it is recorded.")
@pass_invocation
def takeover(invocation: Invocation, session: str, reason: str | None) -> None:
    """Take SESSION over. Its agent's actions are refused until you hand it back."""
    with open_client(invocation) as client:
        taken = client.change_browser_session(session, "takeover", reason=reason)
    invocation.output.data(taken.document, lambda _: f"{escape(session)} is yours until you hand it back")


@click.command("handback")
@click.argument("session")
@pass_invocation
def handback(invocation: Invocation, session: str) -> None:
    """Hand SESSION back to its agent."""
    with open_client(invocation) as client:
        back = client.change_browser_session(session, "handback")
    invocation.output.data(back.document, lambda _: f"{escape(session)} is {escape(back.principal)}'s again")


@click.group("downloads")
def downloads() -> None:
    """See and save what sessions downloaded; decide about what was quarantined."""


@downloads.command("list")
@click.argument("session")
@pass_invocation
def list_downloads(invocation: Invocation, session: str) -> None:
    """List what SESSION downloaded, and why some of it is in quarantine."""
    with open_client(invocation) as client:
        found = client.browser_downloads(session)
    rows = [(one.id, one.name, one.size, one.state, ", ".join(one.reasons), one.released_by) for one in found]
    invocation.output.listing("downloads", found, ("download", "name", "bytes", "state", "why", "released by"), rows)


@downloads.command("save")
@click.argument("session")
@click.argument("download")
@click.argument("path")
@click.option("--replace", is_flag=True, help="Replace a file that is there.")
@click.option("--approve", is_flag=True, help="Approve the call yourself, where it needs a person.")
@pass_invocation
def save_download(invocation: Invocation, session: str, download: str, path: str, replace: bool, approve: bool) -> None:
    """Save DOWNLOAD of SESSION as PATH in the workspace: a tool call, approved like writing a file."""
    from palyra.cli.commands.browser import use_session

    arguments = {"save": download, "path": path, "replace": replace}
    made = use_session(invocation, session, "browser.downloads", arguments, approve=approve)
    saved = made.result["saved"]
    invocation.output.data(
        saved, lambda _: f"{escape(saved['path'])}: {saved['bytes']} bytes, sha256 {saved['sha256']}"
    )


@downloads.command("release")
@click.argument("session")
@click.argument("download")
@pass_invocation
def release_download(invocation: Invocation, session: str, download: str) -> None:
    """Let DOWNLOAD of SESSION out of quarantine: its agent can have it then. Recorded with its digest."""
    _decide(invocation, session, download, "release", "is released")


@downloads.command("delete")
@click.argument("session")
@click.argument("download")
@pass_invocation
def delete_download(invocation: Invocation, session: str, download: str) -> None:
    """Delete DOWNLOAD of SESSION. Recorded with its digest."""
    _decide(invocation, session, download, "delete", "is deleted")


@click.group("profiles")
def profiles() -> None:
    """Profiles keep logins between sessions, encrypted; each belongs to one principal."""


@profiles.command("list")
@pass_invocation
def list_profiles(invocation: Invocation) -> None:
    """List the profiles there are."""
    with open_client(invocation) as client:
        found = client.browser_profiles()
    rows = [
        (one.profile_id, one.name, one.principal, "private" if one.private else one.revision, one.size, one.damaged)
        for one in found
    ]
    invocation.output.listing("profiles", found, ("profile", "name", "principal", "revision", "bytes", "damage"), rows)


@profiles.command("create")
@click.argument("name")
@click.option("--principal", default="agent:cli", show_default=True, help="Whose it is.")
@click.option("--private", is_flag=True, help="It keeps nothing.")
@pass_invocation
def create_profile(invocation: Invocation, name: str, principal: str, private: bool) -> None:
    """Make a profile NAME for a principal."""
    with open_client(invocation) as client:
        made = client.create_browser_profile(principal, name, private=private)
    invocation.output.data(
        made.document, lambda _: f"{escape(made.profile_id)} is {escape(name)} of {escape(principal)}"
    )


@profiles.command("reset")
@click.argument("profile")
@pass_invocation
def reset_profile(invocation: Invocation, profile: str) -> None:
    """Empty PROFILE (its id): its logins are gone."""
    _change_profile(invocation, profile, "reset", "is empty")


@profiles.command("delete")
@click.argument("profile")
@pass_invocation
def delete_profile(invocation: Invocation, profile: str) -> None:
    """Delete PROFILE (its id) with everything in it."""
    _change_profile(invocation, profile, "delete", "is deleted")


@profiles.command("accept")
@pass_invocation
def accept_profiles(invocation: Invocation) -> None:
    """Go on from an older copy of all profiles.

    Where the folder of profiles was put back from an earlier time, or emptied, Palyra notices and lets nobody use it:
    a login from before a password was changed, or a profile that was deleted, may be in it. Accept it if that was done
    on purpose, as after restoring that folder alone; it is recorded.
    """
    with open_client(invocation) as client:
        accepted = client.accept_browser_profiles()
    invocation.output.data(
        accepted.document,
        lambda _: (
            f"the profiles of change {accepted.found} are used; the last that was known was {accepted.last_known}"
        ),
    )


def _decide(
    invocation: Invocation, session: str, download: str, verdict: Literal["release", "delete"], words: str
) -> None:

    with open_client(invocation) as client:
        decided = client.decide_browser_download(session, download, verdict)
    invocation.output.data(
        decided.document, lambda _: f"{escape(decided.name)} {words}; sha256 {escape(decided.digest)}"
    )


def _change_profile(invocation: Invocation, profile: str, change: Literal["reset", "delete"], words: str) -> None:
    with open_client(invocation) as client:
        changed = client.change_browser_profile(profile, change)
    invocation.output.data(changed.document, lambda _: f"{escape(changed.name)} {words}")


def _at(session: "BrowserSessionView") -> str:
    active = next((tab for tab in session.tabs if tab.get("active")), None)
    return "" if active is None else str(active.get("url", ""))


def _render(session: "BrowserSessionView") -> str:
    tabs = [f"{tab['tab']}{' *' if tab.get('active') else ''} {tab['url']}" for tab in session.tabs]
    spent = session.document.get("spent", {})
    rows = [
        ("session", escape(session.session_id)),
        ("principal", escape(session.principal)),
        ("run", escape(session.run_id)),
        ("state", escape(session.state) + (f" by {escape(session.operator)}" if session.operator else "")),
        ("label", escape(session.label)),
        ("reaches", ", ".join(map(escape, session.hosts))),
        ("tabs", "\n".join(map(escape, tabs))),
        ("opened", rfc3339(session.created_ms)),
        ("ends", rfc3339(session.ends_ms)),
        ("spent", ", ".join(f"{escape(name)} {amount}" for name, amount in spent.items())),
        ("fences", "\n".join(f"{escape(each['layer'])}: {escape(each['got'])}" for each in session.fences)),
    ]
    return render_fields(rows)
