"""The browser tools as agents see them: their texts and their schemas. The reader is a model."""

from typing import Final, NamedTuple

from palyra.browser.domain.action import LoadState, SnapshotForm
from palyra.egress.limits import MAX_URL_CHARS
from palyra.executors.browser import arguments as limits
from palyra.executors.browser.schema_fragments import (
    ACTION,
    COUNT,
    DOWNLOAD,
    ELEMENT,
    FLAG,
    HOSTS,
    OUTCOME,
    OUTCOME_PART,
    PATH_CHARS,
    PICTURE,
    PLACE,
    PROBLEM,
    SESSION,
    SNAPSHOT,
    SNAPSHOT_AFTER,
    SNAPSHOT_FIELDS,
    SNAPSHOT_TOO,
    TAB,
    TAB_VIEW,
    TEXT,
    TIMEOUT,
    TRUST_FIELDS,
    UNTRUSTED,
    URL,
    WAIT,
    Schema,
    flag,
    one_of,
    part,
    text,
    whole,
)


class ToolText(NamedTuple):
    title: str
    description: str
    input_schema: Schema
    output_schema: Schema


TOOLS: Final[dict[str, ToolText]] = {
    "browser.open": ToolText(
        "Open a browser session",
        "Opens a browser with the hosts that it may reach, and goes to an address if one is given. A person approves"
        " the hosts once; what is done inside the session is then not asked about again, except typing shared secrets,"
        " uploading files and saving downloads. Returns the session for all other browser tools. Close it when done.",
        whole(
            {
                "hosts": HOSTS,
                "url": {**URL, "description": "Where to go first; its host is added to the hosts."},
                "any_public_host": flag("Every public host, where the operator lets sessions have that."),
                "profile": text(
                    "The name of a profile whose logins are there and kept; without it the session forgets everything.",
                    limits.MAX_NAME_CHARS,
                ),
                "label": text("What people see of the session in lists.", limits.MAX_NAME_CHARS),
                "viewport": part({"width": COUNT, "height": COUNT}, "width", "height"),
                "snapshot": SNAPSHOT_AFTER,
            }
        ),
        whole(
            {
                "session": {**TEXT, "description": "Names the session in every other browser tool."},
                "hosts": {"type": "array", "items": TEXT, "description": "What it may reach."},
                "profile": TEXT,
                "ends_at": {**TEXT, "description": "When it ends at the latest."},
                "idle_seconds": {**COUNT, "description": "It ends when nobody uses it for this long."},
                "page": OUTCOME_PART,
                **SNAPSHOT_TOO,
                **UNTRUSTED,
            },
            *("session", "hosts", "ends_at", "idle_seconds", *TRUST_FIELDS),
        ),
    ),
    "browser.close": ToolText(
        "Close a browser session",
        "Ends a session with everything in it. A profile's logins are saved, unless discard is set.",
        whole({"session": SESSION, "discard": flag("Save nothing to the profile.")}, "session"),
        whole(
            {
                "closed": {"const": True},
                "saved": {**FLAG, "description": "Whether a profile was saved."},
                "problem": {**TEXT, "description": "Why a profile that should have been saved was not."},
            },
            *("closed", "saved"),
        ),
    ),
    "browser.navigate": ToolText(
        "Go to an address",
        "Goes to an address, or back, forward or once more, and waits for the page. Only the session's hosts are"
        " reached.",
        whole(
            {
                "session": SESSION,
                "url": URL,
                "to": one_of(("back", "forward", "reload"), "Instead of an address."),
                "tab": TAB,
                "wait": WAIT,
                "timeout_ms": TIMEOUT,
                "snapshot": SNAPSHOT_AFTER,
            },
            "session",
        ),
        whole({**OUTCOME, **SNAPSHOT_TOO, **UNTRUSTED}, *("tab", "url", "title", "status", *TRUST_FIELDS)),
    ),
    "browser.snapshot": ToolText(
        "Look at a page",
        "Returns the page as an indented tree of roles and names with refs, which actions take as targets; or its"
        " visible text, or its markup. Frames and shadow roots are in it. Refs hold until what they name changes.",
        whole(
            {
                "session": SESSION,
                "tab": TAB,
                "form": one_of(SnapshotForm, "tree has refs; text is for reading.", SnapshotForm.TREE.value),
                "within": {**ELEMENT, "description": "Only what lies in this element: a ref, or a selector."},
                "depth": {**COUNT, "description": "How deep the tree goes; 0 is all of it."},
                "interactive_only": flag("Only what can be clicked, filled in or chosen."),
                "since_last": flag("Mark with [new] what the last snapshot of this tab did not have."),
                "max_bytes": {**COUNT, "description": "Cut the text here; 0 is the session's limit."},
            },
            "session",
        ),
        whole({**SNAPSHOT, **UNTRUSTED}, *SNAPSHOT_FIELDS, *TRUST_FIELDS),
    ),
    "browser.find": ToolText(
        "Find something in a page",
        "Returns the parts of the page that match a text, each with what it lies in and with refs: quicker and shorter"
        " than a whole snapshot.",
        whole(
            {
                "session": SESSION,
                "text": text("What to look for in names, values and text.", limits.MAX_TEXT_CHARS, 1),
                "tab": TAB,
                "within": {**ELEMENT, "description": "Only in this element: a ref, or a selector."},
                "interactive_only": flag("Only what can be clicked, filled in or chosen."),
                "max_bytes": {**COUNT, "description": "Cut the text here; 0 is the session's limit."},
            },
            *("session", "text"),
        ),
        whole({**SNAPSHOT, **UNTRUSTED}, *SNAPSHOT_FIELDS, "matches", *TRUST_FIELDS),
    ),
    "browser.act": ToolText(
        "Act in a page",
        "Does one or several things in order, with real input events, up to the first that fails. Before each the"
        " element must be there, visible, still, enabled and not covered; otherwise the error says what is in the way."
        " Afterwards tells where the tab is and what happened. Passwords are typed by naming a secret, never as text.",
        whole(
            {
                "session": SESSION,
                "actions": {"type": "array", "minItems": 1, "maxItems": limits.MAX_ACTIONS, "items": ACTION},
                "snapshot": SNAPSHOT_AFTER,
                "picture_on_failure": flag("Return a picture of the page when an action fails."),
            },
            *("session", "actions"),
        ),
        whole(
            {
                "done": {**COUNT, "description": "How many of the actions succeeded."},
                "outcomes": {"type": "array", "items": OUTCOME_PART, "description": "Of each that succeeded."},
                "problem": {**PROBLEM, "description": "Why the next one did not; the rest was not tried."},
                **SNAPSHOT_TOO,
                **PICTURE,
                **UNTRUSTED,
            },
            *("done", "outcomes", *TRUST_FIELDS),
        ),
    ),
    "browser.wait": ToolText(
        "Wait for a page",
        "Waits until everything that is given holds: an element or a text is there (or gone), the address is, the page"
        " has loaded.",
        whole(
            {
                "session": SESSION,
                "target": ELEMENT,
                "text": text("Text that must be visible.", limits.MAX_TEXT_CHARS),
                "url": text("What the tab's address must be or contain.", MAX_URL_CHARS),
                "state": one_of(LoadState, "How far the page must have come."),
                "gone": flag("Until the element or text is not there any more."),
                "tab": TAB,
                "timeout_ms": TIMEOUT,
                "snapshot": SNAPSHOT_AFTER,
            },
            "session",
        ),
        whole({**OUTCOME, **SNAPSHOT_TOO, **UNTRUSTED}, *("tab", "url", "title", "status", *TRUST_FIELDS)),
    ),
    "browser.screenshot": ToolText(
        "Take a picture of a page",
        "Returns a picture of what is in view, of the whole page, or of one element; or the page as a PDF document.",
        whole(
            {
                "session": SESSION,
                "tab": TAB,
                "target": ELEMENT,
                "full_page": flag("The whole page, not only what is in view."),
                "format": one_of(("png", "jpeg", "webp", "pdf"), "jpeg is smaller.", "png"),
                "quality": {"type": "integer", "minimum": 1, "maximum": 100, "default": 80},
            },
            "session",
        ),
        whole(
            {
                **PLACE,
                **PICTURE,
                "pdf_base64": {**TEXT, "description": "The document, for pdf."},
                "bytes": COUNT,
                **UNTRUSTED,
            },
            *("tab", "url", "title", "media_type", "bytes", *TRUST_FIELDS),
        ),
    ),
    "browser.tabs": ToolText(
        "List the tabs",
        "Returns the tabs of a session. The actions open_tab, switch_tab and close_tab of browser.act change them.",
        whole({"session": SESSION}, "session"),
        whole({"tabs": {"type": "array", "items": TAB_VIEW}, **UNTRUSTED}, "tabs", *TRUST_FIELDS),
    ),
    "browser.logs": ToolText(
        "Read a session's logs",
        "Returns what pages wrote to the console, what was requested of the network, or what happened in the session.",
        whole(
            {
                "session": SESSION,
                "log": one_of(("console", "network", "events"), "Which one.", "console"),
                "last": {"type": "integer", "minimum": 1, "maximum": limits.MAX_LOG_ENTRIES, "default": 50},
            },
            "session",
        ),
        whole(
            {
                "log": TEXT,
                "entries": {"type": "array", "items": {"type": "object"}, "description": "Oldest first."},
                **UNTRUSTED,
            },
            *("log", "entries", *TRUST_FIELDS),
        ),
    ),
    "browser.downloads": ToolText(
        "List and save downloads",
        "Lists what the session downloaded, or saves one file into the workspace, which is approved like writing a"
        " file. Files that are not what they claim to be are quarantined, and only an operator can release them.",
        whole(
            {
                "session": SESSION,
                "save": text("The id of a download to save.", least=1),
                "path": text("Where in the workspace; it must not exist yet unless replace is set.", PATH_CHARS, 1),
                "replace": flag("Replace a file that is there."),
            },
            "session",
        ),
        whole(
            {
                "downloads": {"type": "array", "items": DOWNLOAD},
                "saved": part(
                    {"path": TEXT, "bytes": COUNT, "sha256": TEXT, "created": FLAG}, "path", "bytes", "sha256"
                ),
                **UNTRUSTED,
            },
            *("downloads", *TRUST_FIELDS),
        ),
    ),
    "browser.handoff": ToolText(
        "Hand a session to a person",
        "Asks a person to take the session over, for what only a person can do, such as a login with a second factor or"
        " a question that is theirs to answer. Waits until they hand it back or the call's time is up: call again to"
        " go on waiting.",
        whole(
            {
                "session": SESSION,
                "reason": text("What the person is asked to do, in one or two sentences.", limits.MAX_REASON_CHARS, 1),
            },
            *("session", "reason"),
        ),
        whole(
            {
                "state": {
                    "type": "string",
                    "enum": ["handed_back", "taken_over", "waiting"],
                    "description": "waiting: nobody has come yet; taken_over: somebody is at it.",
                },
                "by": {**TEXT, "description": "Who took it over."},
                "tabs": {"type": "array", "items": TAB_VIEW},
                **UNTRUSTED,
            },
            *("state", "by", "tabs", *TRUST_FIELDS),
        ),
    ),
}
