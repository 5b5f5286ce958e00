"""``palyra browser``: sessions of the browser, used and looked after. Each verb is imported when it is called."""

from typing import Final

import click

from palyra.cli.lazy import LazyCommand, LazyGroup

VERBS: Final = {
    "open": LazyCommand("palyra.cli.browser_use:open_session", "Open a session with the hosts it may reach."),
    "list": LazyCommand("palyra.cli.browser_admin:list_sessions", "List the sessions there are."),
    "show": LazyCommand("palyra.cli.browser_admin:show_session", "Show a session and the fences around its browser."),
    "navigate": LazyCommand("palyra.cli.browser_use:navigate", "Go to an address."),
    "snapshot": LazyCommand("palyra.cli.browser_use:snapshot", "Print a page as a tree with refs, or as text."),
    "act": LazyCommand("palyra.cli.browser_use:act", "Click, type, choose, wait: one action or many."),
    "screenshot": LazyCommand("palyra.cli.browser_use:screenshot", "Save a picture of a page."),
    "downloads": LazyCommand("palyra.cli.browser_admin:downloads", "See, save, release and delete downloads."),
    "profiles": LazyCommand("palyra.cli.browser_admin:profiles", "See, make, empty and delete profiles."),
    "takeover": LazyCommand("palyra.cli.browser_admin:takeover", "Take a session over: its agent has to wait."),
    "handback": LazyCommand("palyra.cli.browser_admin:handback", "Hand a session back to its agent."),
    "close": LazyCommand("palyra.cli.browser_admin:close", "End a session."),
}


@click.group(cls=LazyGroup, table=VERBS)
def browser() -> None:
    """Use a browser that reaches named hosts only, and look after everybody's sessions.

    Every use is a tool call: the same decisions, approvals and record as for an agent. `palyra up` starts the browser.
    """
