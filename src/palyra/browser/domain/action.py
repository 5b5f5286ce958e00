"""Actions of a browser session, and their outcomes. Every request becomes one of these values, to be checked once."""

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from palyra.errors import InvalidInput
from palyra.secret import Secret


class BadAction(InvalidInput):
    code = "browser.bad_action"
    hint = "the reference of browser tools lists each action with its fields"


class BadTarget(InvalidInput):
    code = "browser.bad_target"
    hint = "name an element by exactly one of: ref, css, text, or role (with name)"


class ElementTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An element, named in exactly one way. A selector searches all frames and open shadow roots."""

    ref: str | None = None
    css: str | None = None
    text: str | None = None
    role: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        given = [form for form in (self.ref, self.css, self.text, self.role) if form]
        if len(given) != 1 or (self.name is not None and self.role is None):
            raise BadTarget("an element is named in exactly one way")


class MouseButton(StrEnum):
    LEFT = "left"
    MIDDLE = "middle"
    RIGHT = "right"


class LoadState(StrEnum):
    """How far a navigation must come. ``idle``: after the load, half a second passed without a request."""

    COMMITTED = "committed"
    CONTENT = "content"
    LOADED = "loaded"
    IDLE = "idle"


class PictureFormat(StrEnum):
    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"


class _Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An empty ``tab`` is the active one. ``timeout_ms`` 0 is the session's limit, which no action exceeds."""

    tab: str = ""
    timeout_ms: int = 0


class Navigate(_Action, tag="navigate", tag_field="action", frozen=True, kw_only=True):
    url: str
    wait: LoadState = LoadState.LOADED


class Back(_Action, tag="back", tag_field="action", frozen=True, kw_only=True):
    wait: LoadState = LoadState.LOADED


class Forward(_Action, tag="forward", tag_field="action", frozen=True, kw_only=True):
    wait: LoadState = LoadState.LOADED


class Reload(_Action, tag="reload", tag_field="action", frozen=True, kw_only=True):
    wait: LoadState = LoadState.LOADED


class Click(_Action, tag="click", tag_field="action", frozen=True, kw_only=True):
    target: ElementTarget
    button: MouseButton = MouseButton.LEFT
    modifiers: tuple[str, ...] = ()


class DoubleClick(_Action, tag="double_click", tag_field="action", frozen=True, kw_only=True):
    target: ElementTarget
    modifiers: tuple[str, ...] = ()


class Hover(_Action, tag="hover", tag_field="action", frozen=True, kw_only=True):
    target: ElementTarget


class Drag(_Action, tag="drag", tag_field="action", frozen=True, kw_only=True):
    target: ElementTarget
    to: ElementTarget


class Type(_Action, tag="type", tag_field="action", frozen=True, kw_only=True):
    """Type ``text``, or a secret that only pages of ``origins`` may get and that no reply shows."""

    target: ElementTarget
    text: str = ""
    secret: Secret | None = None
    origins: tuple[str, ...] = ()
    clear: bool = True
    submit: bool = False


class Press(_Action, tag="press", tag_field="action", frozen=True, kw_only=True):
    """A key such as ``Enter`` or ``Control+a``, sent to the element or, without one, to the focus."""

    key: str
    target: ElementTarget | None = None


class Select(_Action, tag="select", tag_field="action", frozen=True, kw_only=True):
    target: ElementTarget
    values: tuple[str, ...]


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    content: bytes


class SetFileInput(_Action, tag="set_file_input", tag_field="action", frozen=True, kw_only=True):
    target: ElementTarget
    files: tuple[Upload, ...]


class Scroll(_Action, tag="scroll", tag_field="action", frozen=True, kw_only=True):
    """Scroll by pixels. An element without a distance is scrolled into view."""

    target: ElementTarget | None = None
    dx: int = 0
    dy: int = 0


class WaitFor(_Action, tag="wait_for", tag_field="action", frozen=True, kw_only=True):
    """Wait until every given condition holds. ``gone`` waits until the target or the text is absent."""

    target: ElementTarget | None = None
    text: str = ""
    url: str = ""
    state: LoadState | None = None
    gone: bool = False


class HandleDialog(_Action, tag="handle_dialog", tag_field="action", frozen=True, kw_only=True):
    accept: bool
    text: str = ""


class OpenTab(_Action, tag="open_tab", tag_field="action", frozen=True, kw_only=True):
    url: str = ""


class SwitchTab(_Action, tag="switch_tab", tag_field="action", frozen=True, kw_only=True):
    """``tab`` must be given."""


class CloseTab(_Action, tag="close_tab", tag_field="action", frozen=True, kw_only=True):
    pass


class SetViewport(_Action, tag="set_viewport", tag_field="action", frozen=True, kw_only=True):
    width: int
    height: int
    scale: float = 1.0


class SetPermissions(_Action, tag="set_permissions", tag_field="action", frozen=True, kw_only=True):
    """Grant these permissions to the origin and revoke all others of it."""

    origin: str
    grant: tuple[str, ...] = ()


class Screenshot(_Action, tag="screenshot", tag_field="action", frozen=True, kw_only=True):
    target: ElementTarget | None = None
    full_page: bool = False
    format: PictureFormat = PictureFormat.PNG
    quality: int = 80


class ExportPdf(_Action, tag="export_pdf", tag_field="action", frozen=True, kw_only=True):
    landscape: bool = False


class Evaluate(_Action, tag="evaluate", tag_field="action", frozen=True, kw_only=True):
    """Run a script in the page. It can do whatever the page can, so policy must permit it."""

    expression: str


class ResetState(_Action, tag="reset_state", tag_field="action", frozen=True, kw_only=True):
    """Clear cookies, storage, caches and permissions, and close every tab but one."""


# Actions on an element or on the focus, not on the tab as a whole.
ElementAction: TypeAlias = (
    Click | DoubleClick | Hover | Drag | Type | Press | Select | SetFileInput | Scroll | WaitFor | Screenshot
)
Action: TypeAlias = (
    ElementAction
    | Navigate
    | Back
    | Forward
    | Reload
    | HandleDialog
    | OpenTab
    | SwitchTab
    | CloseTab
    | SetViewport
    | SetPermissions
    | ExportPdf
    | Evaluate
    | ResetState
)


class Dialog(msgspec.Struct, frozen=True, kw_only=True):
    """An open dialog. Its tab does nothing else until the dialog is answered."""

    kind: Literal["alert", "confirm", "prompt", "beforeunload"]
    message: str
    default_text: str = ""


class TabView(msgspec.Struct, frozen=True, kw_only=True):
    """``tab`` is a name of ours. A session never gives the same name twice."""

    tab: str
    url: str
    title: str
    active: bool
    opener: str = ""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The picture, document or JSON text that an action produced."""

    content: bytes = b""
    media_type: str = ""
    value_json: str = ""


class ActionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tab is after an action, and what happened meanwhile. It does not contain the page's tree."""

    tab: str
    url: str
    title: str
    # The HTTP status of the shown document, or 0.
    status: int = 0
    # Whether the shown document, or the next one, is still loading.
    loading: bool = False
    dialog: Dialog | None = None
    new_tabs: tuple[TabView, ...] = ()
    # Ids of the downloads that began meanwhile.
    downloads: tuple[str, ...] = ()
    console_errors: tuple[str, ...] = ()
    # Requests that were refused meanwhile: the address and the code.
    refused: tuple[str, ...] = ()
    # A picture or a PDF document, for the actions that make one.
    content: bytes = b""
    media_type: str = ""
    # The JSON text of the result of `evaluate`.
    value_json: str = ""


# Observations.


class SnapshotForm(StrEnum):
    """``tree`` is the accessibility tree as indented text with refs, ``text`` the visible text, ``dom`` the markup."""

    TREE = "tree"
    TEXT = "text"
    DOM = "dom"


class ObserveAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An empty ``tab`` is the active one.

    ``max_bytes`` 0 is 16 KiB for a tree and the session's limit for the other forms, which no observation
    exceeds.
    """

    tab: str = ""
    form: SnapshotForm = SnapshotForm.TREE
    # Only the content of this element.
    within: ElementTarget | None = None
    depth: int = 0
    interactive_only: bool = False
    # Only elements that match this text, each with its ancestors.
    find: str = ""
    # Marks with [new] the elements that the last observation of this tab did not have.
    since_last: bool = False
    max_bytes: int = 0


class ChromiumObserveSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """``text`` was written by the page. A mark in it shows where it was ``truncated``."""

    tab: str
    url: str
    title: str
    form: SnapshotForm
    text: str
    truncated: bool = False
    # How many elements got a ref, and how many matched ``find``.
    refs: int = 0
    matches: int = 0
    tabs: tuple[TabView, ...] = ()


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the console's or the network's log, without secrets and credentials."""

    at_ms: int
    kind: str
    text: str
    url: str = ""
    status: int = 0
    method: str = ""
    tab: str = ""
