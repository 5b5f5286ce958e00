from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_STATE_UNSPECIFIED: _ClassVar[SessionState]
    SESSION_STATE_OPEN: _ClassVar[SessionState]
    SESSION_STATE_TAKEN_OVER: _ClassVar[SessionState]
    SESSION_STATE_CLOSING: _ClassVar[SessionState]

class LoadState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOAD_STATE_UNSPECIFIED: _ClassVar[LoadState]
    LOAD_STATE_COMMITTED: _ClassVar[LoadState]
    LOAD_STATE_CONTENT: _ClassVar[LoadState]
    LOAD_STATE_LOADED: _ClassVar[LoadState]
    LOAD_STATE_IDLE: _ClassVar[LoadState]

class MouseButton(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MOUSE_BUTTON_UNSPECIFIED: _ClassVar[MouseButton]
    MOUSE_BUTTON_LEFT: _ClassVar[MouseButton]
    MOUSE_BUTTON_MIDDLE: _ClassVar[MouseButton]
    MOUSE_BUTTON_RIGHT: _ClassVar[MouseButton]

class PictureFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PICTURE_FORMAT_UNSPECIFIED: _ClassVar[PictureFormat]
    PICTURE_FORMAT_PNG: _ClassVar[PictureFormat]
    PICTURE_FORMAT_JPEG: _ClassVar[PictureFormat]
    PICTURE_FORMAT_WEBP: _ClassVar[PictureFormat]

class SnapshotForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SNAPSHOT_FORM_UNSPECIFIED: _ClassVar[SnapshotForm]
    SNAPSHOT_FORM_TREE: _ClassVar[SnapshotForm]
    SNAPSHOT_FORM_TEXT: _ClassVar[SnapshotForm]
    SNAPSHOT_FORM_DOM: _ClassVar[SnapshotForm]

class OperatorDoes(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATOR_DOES_UNSPECIFIED: _ClassVar[OperatorDoes]
    OPERATOR_DOES_CLICK: _ClassVar[OperatorDoes]
    OPERATOR_DOES_MOVE: _ClassVar[OperatorDoes]
    OPERATOR_DOES_SCROLL: _ClassVar[OperatorDoes]
    OPERATOR_DOES_TYPE: _ClassVar[OperatorDoes]
    OPERATOR_DOES_KEY: _ClassVar[OperatorDoes]
SESSION_STATE_UNSPECIFIED: SessionState
SESSION_STATE_OPEN: SessionState
SESSION_STATE_TAKEN_OVER: SessionState
SESSION_STATE_CLOSING: SessionState
LOAD_STATE_UNSPECIFIED: LoadState
LOAD_STATE_COMMITTED: LoadState
LOAD_STATE_CONTENT: LoadState
LOAD_STATE_LOADED: LoadState
LOAD_STATE_IDLE: LoadState
MOUSE_BUTTON_UNSPECIFIED: MouseButton
MOUSE_BUTTON_LEFT: MouseButton
MOUSE_BUTTON_MIDDLE: MouseButton
MOUSE_BUTTON_RIGHT: MouseButton
PICTURE_FORMAT_UNSPECIFIED: PictureFormat
PICTURE_FORMAT_PNG: PictureFormat
PICTURE_FORMAT_JPEG: PictureFormat
PICTURE_FORMAT_WEBP: PictureFormat
SNAPSHOT_FORM_UNSPECIFIED: SnapshotForm
SNAPSHOT_FORM_TREE: SnapshotForm
SNAPSHOT_FORM_TEXT: SnapshotForm
SNAPSHOT_FORM_DOM: SnapshotForm
OPERATOR_DOES_UNSPECIFIED: OperatorDoes
OPERATOR_DOES_CLICK: OperatorDoes
OPERATOR_DOES_MOVE: OperatorDoes
OPERATOR_DOES_SCROLL: OperatorDoes
OPERATOR_DOES_TYPE: OperatorDoes
OPERATOR_DOES_KEY: OperatorDoes

class Caller(_message.Message):
    __slots__ = ("principal", "run_id", "call_id", "operator")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    principal: str
    run_id: str
    call_id: str
    operator: str
    def __init__(self, principal: _Optional[str] = ..., run_id: _Optional[str] = ..., call_id: _Optional[str] = ..., operator: _Optional[str] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthResponse(_message.Message):
    __slots__ = ("protocol_version", "software_version", "status", "sessions", "ready_browsers", "product")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    READY_BROWSERS_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    software_version: str
    status: str
    sessions: int
    ready_browsers: int
    product: str
    def __init__(self, protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ..., status: _Optional[str] = ..., sessions: _Optional[int] = ..., ready_browsers: _Optional[int] = ..., product: _Optional[str] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ("caller", "profile_id", "budget", "hosts", "private_targets", "any_public_host", "allow_evaluate", "label", "viewport_width", "viewport_height")
    class BudgetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_TARGETS_FIELD_NUMBER: _ClassVar[int]
    ANY_PUBLIC_HOST_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EVALUATE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    VIEWPORT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    VIEWPORT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    profile_id: str
    budget: _containers.ScalarMap[str, int]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    private_targets: _containers.RepeatedScalarFieldContainer[str]
    any_public_host: bool
    allow_evaluate: bool
    label: str
    viewport_width: int
    viewport_height: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., profile_id: _Optional[str] = ..., budget: _Optional[_Mapping[str, int]] = ..., hosts: _Optional[_Iterable[str]] = ..., private_targets: _Optional[_Iterable[str]] = ..., any_public_host: _Optional[bool] = ..., allow_evaluate: _Optional[bool] = ..., label: _Optional[str] = ..., viewport_width: _Optional[int] = ..., viewport_height: _Optional[int] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("caller", "session_id")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ...) -> None: ...

class SessionView(_message.Message):
    __slots__ = ("session_id", "principal", "state", "label", "profile_id", "persistent", "created_ms", "ends_ms", "idle_ends_ms", "budget", "spent", "hosts", "private_targets", "any_public_host", "allow_evaluate", "tabs", "fences_json", "fences_waived", "product", "operator")
    class BudgetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class SpentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    PERSISTENT_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_ENDS_MS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_TARGETS_FIELD_NUMBER: _ClassVar[int]
    ANY_PUBLIC_HOST_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EVALUATE_FIELD_NUMBER: _ClassVar[int]
    TABS_FIELD_NUMBER: _ClassVar[int]
    FENCES_JSON_FIELD_NUMBER: _ClassVar[int]
    FENCES_WAIVED_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    principal: str
    state: SessionState
    label: str
    profile_id: str
    persistent: bool
    created_ms: int
    ends_ms: int
    idle_ends_ms: int
    budget: _containers.ScalarMap[str, int]
    spent: _containers.ScalarMap[str, int]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    private_targets: _containers.RepeatedScalarFieldContainer[str]
    any_public_host: bool
    allow_evaluate: bool
    tabs: _containers.RepeatedCompositeFieldContainer[TabView]
    fences_json: bytes
    fences_waived: _containers.RepeatedScalarFieldContainer[str]
    product: str
    operator: str
    def __init__(self, session_id: _Optional[str] = ..., principal: _Optional[str] = ..., state: _Optional[_Union[SessionState, str]] = ..., label: _Optional[str] = ..., profile_id: _Optional[str] = ..., persistent: _Optional[bool] = ..., created_ms: _Optional[int] = ..., ends_ms: _Optional[int] = ..., idle_ends_ms: _Optional[int] = ..., budget: _Optional[_Mapping[str, int]] = ..., spent: _Optional[_Mapping[str, int]] = ..., hosts: _Optional[_Iterable[str]] = ..., private_targets: _Optional[_Iterable[str]] = ..., any_public_host: _Optional[bool] = ..., allow_evaluate: _Optional[bool] = ..., tabs: _Optional[_Iterable[_Union[TabView, _Mapping]]] = ..., fences_json: _Optional[bytes] = ..., fences_waived: _Optional[_Iterable[str]] = ..., product: _Optional[str] = ..., operator: _Optional[str] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: SessionView
    def __init__(self, session: _Optional[_Union[SessionView, _Mapping]] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionView]
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionView, _Mapping]]] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("caller", "session_id", "discard")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DISCARD_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    discard: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., discard: _Optional[bool] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ("saved", "revision", "problem_code", "problem_message")
    SAVED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_CODE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    saved: bool
    revision: int
    problem_code: str
    problem_message: str
    def __init__(self, saved: _Optional[bool] = ..., revision: _Optional[int] = ..., problem_code: _Optional[str] = ..., problem_message: _Optional[str] = ...) -> None: ...

class ElementTarget(_message.Message):
    __slots__ = ("ref", "css", "text", "role", "name")
    REF_FIELD_NUMBER: _ClassVar[int]
    CSS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ref: str
    css: str
    text: str
    role: str
    name: str
    def __init__(self, ref: _Optional[str] = ..., css: _Optional[str] = ..., text: _Optional[str] = ..., role: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Navigate(_message.Message):
    __slots__ = ("url", "wait")
    URL_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    url: str
    wait: LoadState
    def __init__(self, url: _Optional[str] = ..., wait: _Optional[_Union[LoadState, str]] = ...) -> None: ...

class Back(_message.Message):
    __slots__ = ("wait",)
    WAIT_FIELD_NUMBER: _ClassVar[int]
    wait: LoadState
    def __init__(self, wait: _Optional[_Union[LoadState, str]] = ...) -> None: ...

class Forward(_message.Message):
    __slots__ = ("wait",)
    WAIT_FIELD_NUMBER: _ClassVar[int]
    wait: LoadState
    def __init__(self, wait: _Optional[_Union[LoadState, str]] = ...) -> None: ...

class Reload(_message.Message):
    __slots__ = ("wait",)
    WAIT_FIELD_NUMBER: _ClassVar[int]
    wait: LoadState
    def __init__(self, wait: _Optional[_Union[LoadState, str]] = ...) -> None: ...

class Click(_message.Message):
    __slots__ = ("target", "button", "modifiers")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BUTTON_FIELD_NUMBER: _ClassVar[int]
    MODIFIERS_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    button: MouseButton
    modifiers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., button: _Optional[_Union[MouseButton, str]] = ..., modifiers: _Optional[_Iterable[str]] = ...) -> None: ...

class DoubleClick(_message.Message):
    __slots__ = ("target", "modifiers")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MODIFIERS_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    modifiers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., modifiers: _Optional[_Iterable[str]] = ...) -> None: ...

class Hover(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ...) -> None: ...

class Drag(_message.Message):
    __slots__ = ("target", "to")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    to: ElementTarget
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., to: _Optional[_Union[ElementTarget, _Mapping]] = ...) -> None: ...

class SecretText(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class Type(_message.Message):
    __slots__ = ("target", "text", "secret", "origins", "clear", "submit")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    text: str
    secret: SecretText
    origins: _containers.RepeatedScalarFieldContainer[str]
    clear: bool
    submit: bool
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., text: _Optional[str] = ..., secret: _Optional[_Union[SecretText, _Mapping]] = ..., origins: _Optional[_Iterable[str]] = ..., clear: _Optional[bool] = ..., submit: _Optional[bool] = ...) -> None: ...

class Press(_message.Message):
    __slots__ = ("key", "target")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    key: str
    target: ElementTarget
    def __init__(self, key: _Optional[str] = ..., target: _Optional[_Union[ElementTarget, _Mapping]] = ...) -> None: ...

class Select(_message.Message):
    __slots__ = ("target", "values")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("name", "content")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    content: bytes
    def __init__(self, name: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class SetFileInput(_message.Message):
    __slots__ = ("target", "files")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    files: _containers.RepeatedCompositeFieldContainer[Upload]
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., files: _Optional[_Iterable[_Union[Upload, _Mapping]]] = ...) -> None: ...

class Scroll(_message.Message):
    __slots__ = ("target", "dx", "dy")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DX_FIELD_NUMBER: _ClassVar[int]
    DY_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    dx: int
    dy: int
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., dx: _Optional[int] = ..., dy: _Optional[int] = ...) -> None: ...

class WaitFor(_message.Message):
    __slots__ = ("target", "text", "url", "state", "gone")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    text: str
    url: str
    state: LoadState
    gone: bool
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., text: _Optional[str] = ..., url: _Optional[str] = ..., state: _Optional[_Union[LoadState, str]] = ..., gone: _Optional[bool] = ...) -> None: ...

class HandleDialog(_message.Message):
    __slots__ = ("accept", "text")
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    accept: bool
    text: str
    def __init__(self, accept: _Optional[bool] = ..., text: _Optional[str] = ...) -> None: ...

class OpenTab(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...

class SwitchTab(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CloseTab(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetViewport(_message.Message):
    __slots__ = ("width", "height", "scale")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    width: int
    height: int
    scale: float
    def __init__(self, width: _Optional[int] = ..., height: _Optional[int] = ..., scale: _Optional[float] = ...) -> None: ...

class SetPermissions(_message.Message):
    __slots__ = ("origin", "grant")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    origin: str
    grant: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, origin: _Optional[str] = ..., grant: _Optional[_Iterable[str]] = ...) -> None: ...

class Screenshot(_message.Message):
    __slots__ = ("target", "full_page", "format", "quality")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    FULL_PAGE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    QUALITY_FIELD_NUMBER: _ClassVar[int]
    target: ElementTarget
    full_page: bool
    format: PictureFormat
    quality: int
    def __init__(self, target: _Optional[_Union[ElementTarget, _Mapping]] = ..., full_page: _Optional[bool] = ..., format: _Optional[_Union[PictureFormat, str]] = ..., quality: _Optional[int] = ...) -> None: ...

class ExportPdf(_message.Message):
    __slots__ = ("landscape",)
    LANDSCAPE_FIELD_NUMBER: _ClassVar[int]
    landscape: bool
    def __init__(self, landscape: _Optional[bool] = ...) -> None: ...

class Evaluate(_message.Message):
    __slots__ = ("expression",)
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    expression: str
    def __init__(self, expression: _Optional[str] = ...) -> None: ...

class ResetState(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Action(_message.Message):
    __slots__ = ("tab", "timeout_ms", "navigate", "back", "forward", "reload", "click", "double_click", "hover", "drag", "type", "press", "select", "set_file_input", "scroll", "wait_for", "handle_dialog", "open_tab", "switch_tab", "close_tab", "set_viewport", "set_permissions", "screenshot", "export_pdf", "evaluate", "reset_state")
    TAB_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    NAVIGATE_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    RELOAD_FIELD_NUMBER: _ClassVar[int]
    CLICK_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_CLICK_FIELD_NUMBER: _ClassVar[int]
    HOVER_FIELD_NUMBER: _ClassVar[int]
    DRAG_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PRESS_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    SET_FILE_INPUT_FIELD_NUMBER: _ClassVar[int]
    SCROLL_FIELD_NUMBER: _ClassVar[int]
    WAIT_FOR_FIELD_NUMBER: _ClassVar[int]
    HANDLE_DIALOG_FIELD_NUMBER: _ClassVar[int]
    OPEN_TAB_FIELD_NUMBER: _ClassVar[int]
    SWITCH_TAB_FIELD_NUMBER: _ClassVar[int]
    CLOSE_TAB_FIELD_NUMBER: _ClassVar[int]
    SET_VIEWPORT_FIELD_NUMBER: _ClassVar[int]
    SET_PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    SCREENSHOT_FIELD_NUMBER: _ClassVar[int]
    EXPORT_PDF_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_FIELD_NUMBER: _ClassVar[int]
    RESET_STATE_FIELD_NUMBER: _ClassVar[int]
    tab: str
    timeout_ms: int
    navigate: Navigate
    back: Back
    forward: Forward
    reload: Reload
    click: Click
    double_click: DoubleClick
    hover: Hover
    drag: Drag
    type: Type
    press: Press
    select: Select
    set_file_input: SetFileInput
    scroll: Scroll
    wait_for: WaitFor
    handle_dialog: HandleDialog
    open_tab: OpenTab
    switch_tab: SwitchTab
    close_tab: CloseTab
    set_viewport: SetViewport
    set_permissions: SetPermissions
    screenshot: Screenshot
    export_pdf: ExportPdf
    evaluate: Evaluate
    reset_state: ResetState
    def __init__(self, tab: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., navigate: _Optional[_Union[Navigate, _Mapping]] = ..., back: _Optional[_Union[Back, _Mapping]] = ..., forward: _Optional[_Union[Forward, _Mapping]] = ..., reload: _Optional[_Union[Reload, _Mapping]] = ..., click: _Optional[_Union[Click, _Mapping]] = ..., double_click: _Optional[_Union[DoubleClick, _Mapping]] = ..., hover: _Optional[_Union[Hover, _Mapping]] = ..., drag: _Optional[_Union[Drag, _Mapping]] = ..., type: _Optional[_Union[Type, _Mapping]] = ..., press: _Optional[_Union[Press, _Mapping]] = ..., select: _Optional[_Union[Select, _Mapping]] = ..., set_file_input: _Optional[_Union[SetFileInput, _Mapping]] = ..., scroll: _Optional[_Union[Scroll, _Mapping]] = ..., wait_for: _Optional[_Union[WaitFor, _Mapping]] = ..., handle_dialog: _Optional[_Union[HandleDialog, _Mapping]] = ..., open_tab: _Optional[_Union[OpenTab, _Mapping]] = ..., switch_tab: _Optional[_Union[SwitchTab, _Mapping]] = ..., close_tab: _Optional[_Union[CloseTab, _Mapping]] = ..., set_viewport: _Optional[_Union[SetViewport, _Mapping]] = ..., set_permissions: _Optional[_Union[SetPermissions, _Mapping]] = ..., screenshot: _Optional[_Union[Screenshot, _Mapping]] = ..., export_pdf: _Optional[_Union[ExportPdf, _Mapping]] = ..., evaluate: _Optional[_Union[Evaluate, _Mapping]] = ..., reset_state: _Optional[_Union[ResetState, _Mapping]] = ...) -> None: ...

class Dialog(_message.Message):
    __slots__ = ("kind", "message", "default_text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    default_text: str
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., default_text: _Optional[str] = ...) -> None: ...

class TabView(_message.Message):
    __slots__ = ("tab", "url", "title", "active", "opener")
    TAB_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    OPENER_FIELD_NUMBER: _ClassVar[int]
    tab: str
    url: str
    title: str
    active: bool
    opener: str
    def __init__(self, tab: _Optional[str] = ..., url: _Optional[str] = ..., title: _Optional[str] = ..., active: _Optional[bool] = ..., opener: _Optional[str] = ...) -> None: ...

class ActionOutcome(_message.Message):
    __slots__ = ("tab", "url", "title", "status", "dialog", "new_tabs", "downloads", "console_errors", "refused", "content", "media_type", "value_json", "loading")
    TAB_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DIALOG_FIELD_NUMBER: _ClassVar[int]
    NEW_TABS_FIELD_NUMBER: _ClassVar[int]
    DOWNLOADS_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_ERRORS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_JSON_FIELD_NUMBER: _ClassVar[int]
    LOADING_FIELD_NUMBER: _ClassVar[int]
    tab: str
    url: str
    title: str
    status: int
    dialog: Dialog
    new_tabs: _containers.RepeatedCompositeFieldContainer[TabView]
    downloads: _containers.RepeatedScalarFieldContainer[str]
    console_errors: _containers.RepeatedScalarFieldContainer[str]
    refused: _containers.RepeatedScalarFieldContainer[str]
    content: bytes
    media_type: str
    value_json: str
    loading: bool
    def __init__(self, tab: _Optional[str] = ..., url: _Optional[str] = ..., title: _Optional[str] = ..., status: _Optional[int] = ..., dialog: _Optional[_Union[Dialog, _Mapping]] = ..., new_tabs: _Optional[_Iterable[_Union[TabView, _Mapping]]] = ..., downloads: _Optional[_Iterable[str]] = ..., console_errors: _Optional[_Iterable[str]] = ..., refused: _Optional[_Iterable[str]] = ..., content: _Optional[bytes] = ..., media_type: _Optional[str] = ..., value_json: _Optional[str] = ..., loading: _Optional[bool] = ...) -> None: ...

class NavigateRequest(_message.Message):
    __slots__ = ("caller", "session_id", "tab", "timeout_ms", "url", "wait")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TAB_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    tab: str
    timeout_ms: int
    url: str
    wait: LoadState
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., tab: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., url: _Optional[str] = ..., wait: _Optional[_Union[LoadState, str]] = ...) -> None: ...

class ScreenshotRequest(_message.Message):
    __slots__ = ("caller", "session_id", "tab", "timeout_ms", "screenshot")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TAB_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SCREENSHOT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    tab: str
    timeout_ms: int
    screenshot: Screenshot
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., tab: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., screenshot: _Optional[_Union[Screenshot, _Mapping]] = ...) -> None: ...

class OutcomeResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: ActionOutcome
    def __init__(self, outcome: _Optional[_Union[ActionOutcome, _Mapping]] = ...) -> None: ...

class ActRequest(_message.Message):
    __slots__ = ("caller", "session_id", "actions", "picture_on_failure")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    PICTURE_ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    actions: _containers.RepeatedCompositeFieldContainer[Action]
    picture_on_failure: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ..., picture_on_failure: _Optional[bool] = ...) -> None: ...

class ActResponse(_message.Message):
    __slots__ = ("outcomes", "problem_json", "picture")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_JSON_FIELD_NUMBER: _ClassVar[int]
    PICTURE_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[ActionOutcome]
    problem_json: bytes
    picture: ActionOutcome
    def __init__(self, outcomes: _Optional[_Iterable[_Union[ActionOutcome, _Mapping]]] = ..., problem_json: _Optional[bytes] = ..., picture: _Optional[_Union[ActionOutcome, _Mapping]] = ...) -> None: ...

class ObserveRequest(_message.Message):
    __slots__ = ("caller", "session_id", "ask")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    ask: ObserveAsk
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., ask: _Optional[_Union[ObserveAsk, _Mapping]] = ...) -> None: ...

class ObserveAsk(_message.Message):
    __slots__ = ("tab", "form", "within", "depth", "interactive_only", "find", "since_last", "max_bytes")
    TAB_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    INTERACTIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    FIND_FIELD_NUMBER: _ClassVar[int]
    SINCE_LAST_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    tab: str
    form: SnapshotForm
    within: ElementTarget
    depth: int
    interactive_only: bool
    find: str
    since_last: bool
    max_bytes: int
    def __init__(self, tab: _Optional[str] = ..., form: _Optional[_Union[SnapshotForm, str]] = ..., within: _Optional[_Union[ElementTarget, _Mapping]] = ..., depth: _Optional[int] = ..., interactive_only: _Optional[bool] = ..., find: _Optional[str] = ..., since_last: _Optional[bool] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ObserveResponse(_message.Message):
    __slots__ = ("tab", "url", "title", "form", "text", "truncated", "refs", "matches", "tabs")
    TAB_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    REFS_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    TABS_FIELD_NUMBER: _ClassVar[int]
    tab: str
    url: str
    title: str
    form: SnapshotForm
    text: str
    truncated: bool
    refs: int
    matches: int
    tabs: _containers.RepeatedCompositeFieldContainer[TabView]
    def __init__(self, tab: _Optional[str] = ..., url: _Optional[str] = ..., title: _Optional[str] = ..., form: _Optional[_Union[SnapshotForm, str]] = ..., text: _Optional[str] = ..., truncated: _Optional[bool] = ..., refs: _Optional[int] = ..., matches: _Optional[int] = ..., tabs: _Optional[_Iterable[_Union[TabView, _Mapping]]] = ...) -> None: ...

class ListTabsResponse(_message.Message):
    __slots__ = ("tabs",)
    TABS_FIELD_NUMBER: _ClassVar[int]
    tabs: _containers.RepeatedCompositeFieldContainer[TabView]
    def __init__(self, tabs: _Optional[_Iterable[_Union[TabView, _Mapping]]] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("caller", "session_id", "last")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    last: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., last: _Optional[int] = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("at_ms", "kind", "text", "url", "status", "method", "tab")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TAB_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    kind: str
    text: str
    url: str
    status: int
    method: str
    tab: str
    def __init__(self, at_ms: _Optional[int] = ..., kind: _Optional[str] = ..., text: _Optional[str] = ..., url: _Optional[str] = ..., status: _Optional[int] = ..., method: _Optional[str] = ..., tab: _Optional[str] = ...) -> None: ...

class ReadLogResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[LogEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ...) -> None: ...

class SessionEvent(_message.Message):
    __slots__ = ("number", "at_ms", "kind", "code", "text", "tab", "actor", "run_id", "call_id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TAB_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    at_ms: int
    kind: str
    code: str
    text: str
    tab: str
    actor: str
    run_id: str
    call_id: str
    def __init__(self, number: _Optional[int] = ..., at_ms: _Optional[int] = ..., kind: _Optional[str] = ..., code: _Optional[str] = ..., text: _Optional[str] = ..., tab: _Optional[str] = ..., actor: _Optional[str] = ..., run_id: _Optional[str] = ..., call_id: _Optional[str] = ...) -> None: ...

class ReadEventsRequest(_message.Message):
    __slots__ = ("caller", "session_id", "after")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    after: int
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class ReadEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[SessionEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[SessionEvent, _Mapping]]] = ...) -> None: ...

class GetCookiesResponse(_message.Message):
    __slots__ = ("cookies",)
    COOKIES_FIELD_NUMBER: _ClassVar[int]
    cookies: _containers.RepeatedCompositeFieldContainer[CookieView]
    def __init__(self, cookies: _Optional[_Iterable[_Union[CookieView, _Mapping]]] = ...) -> None: ...

class CookieView(_message.Message):
    __slots__ = ("name", "domain", "path", "expires", "http_only", "secure", "same_site")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    HTTP_ONLY_FIELD_NUMBER: _ClassVar[int]
    SECURE_FIELD_NUMBER: _ClassVar[int]
    SAME_SITE_FIELD_NUMBER: _ClassVar[int]
    name: str
    domain: str
    path: str
    expires: float
    http_only: bool
    secure: bool
    same_site: str
    def __init__(self, name: _Optional[str] = ..., domain: _Optional[str] = ..., path: _Optional[str] = ..., expires: _Optional[float] = ..., http_only: _Optional[bool] = ..., secure: _Optional[bool] = ..., same_site: _Optional[str] = ...) -> None: ...

class DownloadView(_message.Message):
    __slots__ = ("id", "name", "source", "declared_type", "detail", "size", "digest", "folder", "reasons", "complete", "finished_ms", "released_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DECLARED_TYPE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    FINISHED_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    source: str
    declared_type: str
    detail: str
    size: int
    digest: str
    folder: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    complete: bool
    finished_ms: int
    released_by: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., source: _Optional[str] = ..., declared_type: _Optional[str] = ..., detail: _Optional[str] = ..., size: _Optional[int] = ..., digest: _Optional[str] = ..., folder: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ..., complete: _Optional[bool] = ..., finished_ms: _Optional[int] = ..., released_by: _Optional[str] = ...) -> None: ...

class ListDownloadsResponse(_message.Message):
    __slots__ = ("downloads",)
    DOWNLOADS_FIELD_NUMBER: _ClassVar[int]
    downloads: _containers.RepeatedCompositeFieldContainer[DownloadView]
    def __init__(self, downloads: _Optional[_Iterable[_Union[DownloadView, _Mapping]]] = ...) -> None: ...

class DownloadRequest(_message.Message):
    __slots__ = ("caller", "session_id", "download_id")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    download_id: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., download_id: _Optional[str] = ...) -> None: ...

class DownloadChunk(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class DownloadResponse(_message.Message):
    __slots__ = ("download",)
    DOWNLOAD_FIELD_NUMBER: _ClassVar[int]
    download: DownloadView
    def __init__(self, download: _Optional[_Union[DownloadView, _Mapping]] = ...) -> None: ...

class ProfileView(_message.Message):
    __slots__ = ("profile_id", "principal", "name", "colour", "persistence", "private", "created_ms", "updated_ms", "revision", "size", "damaged", "session_id")
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    PERSISTENCE_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_MS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    profile_id: str
    principal: str
    name: str
    colour: str
    persistence: bool
    private: bool
    created_ms: int
    updated_ms: int
    revision: int
    size: int
    damaged: str
    session_id: str
    def __init__(self, profile_id: _Optional[str] = ..., principal: _Optional[str] = ..., name: _Optional[str] = ..., colour: _Optional[str] = ..., persistence: _Optional[bool] = ..., private: _Optional[bool] = ..., created_ms: _Optional[int] = ..., updated_ms: _Optional[int] = ..., revision: _Optional[int] = ..., size: _Optional[int] = ..., damaged: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class ListProfilesRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ListProfilesResponse(_message.Message):
    __slots__ = ("profiles",)
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    profiles: _containers.RepeatedCompositeFieldContainer[ProfileView]
    def __init__(self, profiles: _Optional[_Iterable[_Union[ProfileView, _Mapping]]] = ...) -> None: ...

class CreateProfileRequest(_message.Message):
    __slots__ = ("caller", "name", "colour", "private")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    name: str
    colour: str
    private: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., name: _Optional[str] = ..., colour: _Optional[str] = ..., private: _Optional[bool] = ...) -> None: ...

class RenameProfileRequest(_message.Message):
    __slots__ = ("caller", "profile_id", "name", "colour")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLOUR_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    profile_id: str
    name: str
    colour: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., profile_id: _Optional[str] = ..., name: _Optional[str] = ..., colour: _Optional[str] = ...) -> None: ...

class ProfileRequest(_message.Message):
    __slots__ = ("caller", "profile_id")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    profile_id: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., profile_id: _Optional[str] = ...) -> None: ...

class ProfileResponse(_message.Message):
    __slots__ = ("profile",)
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    profile: ProfileView
    def __init__(self, profile: _Optional[_Union[ProfileView, _Mapping]] = ...) -> None: ...

class ProfilesHead(_message.Message):
    __slots__ = ("generation", "mark", "rolled_back")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    generation: int
    mark: str
    rolled_back: bool
    def __init__(self, generation: _Optional[int] = ..., mark: _Optional[str] = ..., rolled_back: _Optional[bool] = ...) -> None: ...

class FollowProfilesRequest(_message.Message):
    __slots__ = ("caller", "heard")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    heard: ProfilesHead
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., heard: _Optional[_Union[ProfilesHead, _Mapping]] = ...) -> None: ...

class AcceptProfilesRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class StorageStateResponse(_message.Message):
    __slots__ = ("document",)
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    document: bytes
    def __init__(self, document: _Optional[bytes] = ...) -> None: ...

class ImportStorageStateRequest(_message.Message):
    __slots__ = ("caller", "session_id", "document")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    document: bytes
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., document: _Optional[bytes] = ...) -> None: ...

class ImportStorageStateResponse(_message.Message):
    __slots__ = ("cookies", "origins", "left_out")
    COOKIES_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    cookies: int
    origins: int
    left_out: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cookies: _Optional[int] = ..., origins: _Optional[int] = ..., left_out: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchSessionRequest(_message.Message):
    __slots__ = ("caller", "session_id", "events_after", "frames")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_AFTER_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    events_after: int
    frames: bool
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., events_after: _Optional[int] = ..., frames: _Optional[bool] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("frame", "event")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    frame: LiveFrame
    event: SessionEvent
    def __init__(self, frame: _Optional[_Union[LiveFrame, _Mapping]] = ..., event: _Optional[_Union[SessionEvent, _Mapping]] = ...) -> None: ...

class LiveFrame(_message.Message):
    __slots__ = ("tab", "url", "picture", "width", "height", "at_ms", "media_type")
    TAB_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    PICTURE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    tab: str
    url: str
    picture: bytes
    width: int
    height: int
    at_ms: int
    media_type: str
    def __init__(self, tab: _Optional[str] = ..., url: _Optional[str] = ..., picture: _Optional[bytes] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., at_ms: _Optional[int] = ..., media_type: _Optional[str] = ...) -> None: ...

class TakeOverRequest(_message.Message):
    __slots__ = ("caller", "session_id", "reason")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    reason: str
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class OperatorInput(_message.Message):
    __slots__ = ("does", "x", "y", "dx", "dy", "button", "text", "key")
    DOES_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    DX_FIELD_NUMBER: _ClassVar[int]
    DY_FIELD_NUMBER: _ClassVar[int]
    BUTTON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    does: OperatorDoes
    x: int
    y: int
    dx: int
    dy: int
    button: MouseButton
    text: str
    key: str
    def __init__(self, does: _Optional[_Union[OperatorDoes, str]] = ..., x: _Optional[int] = ..., y: _Optional[int] = ..., dx: _Optional[int] = ..., dy: _Optional[int] = ..., button: _Optional[_Union[MouseButton, str]] = ..., text: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class OperateRequest(_message.Message):
    __slots__ = ("caller", "session_id", "inputs")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    caller: Caller
    session_id: str
    inputs: _containers.RepeatedCompositeFieldContainer[OperatorInput]
    def __init__(self, caller: _Optional[_Union[Caller, _Mapping]] = ..., session_id: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[OperatorInput, _Mapping]]] = ...) -> None: ...

class OperateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
