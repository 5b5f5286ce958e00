"""Values and wire messages: every field of one is a field of the other, and what goes out comes back the same."""

from typing import Any, get_args

import msgspec
import pytest

from palyra.browser.domain import action as actions
from palyra.browser.domain import session_api as views
from palyra.browser.domain.action import (
    Action,
    BadAction,
    BadTarget,
    ChromiumObserveSnapshot,
    ElementTarget,
    LoadState,
    LogEntry,
    MouseButton,
    ObserveAsk,
    PictureFormat,
    SnapshotForm,
)
from palyra.browser.domain.download import DownloadRecord, Folder, Reason
from palyra.browser.domain.session_api import LiveFrame, OperatorDoes, OperatorInput
from palyra.browser.service.wire import read, read_action, write, write_action
from palyra.secret import Secret
from palyra.wire.browser.v1 import browser_pb2 as wire

BUTTON = ElementTarget(role="button", name="Buy")
FULL: list[Action] = [
    actions.Navigate(url="https://a.example/", wait=LoadState.IDLE, tab="t1", timeout_ms=900),
    actions.Back(wait=LoadState.COMMITTED),
    actions.Forward(),
    actions.Reload(),
    actions.Click(target=BUTTON, button=MouseButton.RIGHT, modifiers=("Shift", "Alt")),
    actions.DoubleClick(target=ElementTarget(ref="e1"), modifiers=("Shift",)),
    actions.Hover(target=ElementTarget(css="#a")),
    actions.Drag(target=ElementTarget(ref="e1"), to=ElementTarget(text="Basket")),
    actions.Type(target=BUTTON, secret=Secret("swordfish"), origins=("https://a.example",), clear=False, submit=True),
    actions.Type(target=BUTTON, text="shoes"),
    actions.Press(key="Control+a"),
    actions.Select(target=BUTTON, values=("a", "b")),
    actions.SetFileInput(target=BUTTON, files=(actions.Upload(name="a.csv", content=b"1,2"),)),
    actions.Scroll(dx=-3, dy=400),
    actions.WaitFor(text="Done", url="https://a.example/*", state=LoadState.LOADED, gone=True),
    actions.WaitFor(target=BUTTON),
    actions.HandleDialog(accept=True, text="x"),
    actions.OpenTab(url="https://a.example/"),
    actions.SwitchTab(tab="t2"),
    actions.CloseTab(tab="t2"),
    actions.SetViewport(width=800, height=600, scale=2.0),
    actions.SetPermissions(origin="https://a.example", grant=("geolocation",)),
    actions.Screenshot(target=BUTTON, full_page=True, format=PictureFormat.WEBP, quality=11),
    actions.ExportPdf(landscape=True),
    actions.Evaluate(expression="1+1"),
    actions.ResetState(),
]
SAME: dict[Any, Any] = {
    wire.ElementTarget: ElementTarget,
    wire.Upload: actions.Upload,
    wire.Dialog: actions.Dialog,
    wire.TabView: actions.TabView,
    wire.ActionOutcome: actions.ActionOutcome,
    wire.ObserveAsk: ObserveAsk,
    wire.ObserveResponse: ChromiumObserveSnapshot,
    wire.LogEntry: LogEntry,
    wire.Caller: views.Caller,
    wire.SessionView: views.SessionView,
    wire.CloseSessionResponse: views.CloseReport,
    wire.SessionEvent: views.SessionEvent,
    wire.CookieView: views.CookieView,
    wire.ProfileView: views.ProfileView,
    wire.ImportStorageStateResponse: views.ImportReport,
    wire.LiveFrame: LiveFrame,
    wire.OperatorInput: OperatorInput,
    wire.HealthResponse: views.HealthView,
    wire.DownloadView: DownloadRecord,
}
ACTIONS: dict[Any, Any] = {wire.CreateSessionRequest: views.SessionAsk, wire.WatchSessionRequest: views.WatchAsk}


@pytest.mark.parametrize("action", FULL, ids=lambda action: str(action.__struct_config__.tag))
def test_an_action_comes_back_as_it_went(action: Action) -> None:
    sent = wire.Action.FromString(write_action(action).SerializeToString())
    assert read_action(sent) == action


def test_every_action_was_tried() -> None:
    assert {type(each) for each in FULL} == set(get_args(Action))
    assert set(wire.Action.DESCRIPTOR.oneofs_by_name["action"].fields) >= {
        wire.Action.DESCRIPTOR.fields_by_name[str(type(each).__struct_config__.tag)] for each in FULL
    }


@pytest.mark.parametrize("message", SAME, ids=lambda kind: str(kind.DESCRIPTOR.name))
def test_a_message_and_its_value_have_the_same_fields(message: Any) -> None:
    assert set(message.DESCRIPTOR.fields_by_name) == set(SAME[message].__struct_fields__)


@pytest.mark.parametrize("message", ACTIONS, ids=lambda kind: str(kind.DESCRIPTOR.name))
def test_a_request_has_its_value_s_fields_beside_who_asks(message: Any) -> None:
    fields = set(message.DESCRIPTOR.fields_by_name) - {"caller", "session_id"}
    assert fields == set(ACTIONS[message].__struct_fields__)


@pytest.mark.parametrize("kind", get_args(Action), ids=lambda kind: kind.__name__)
def test_an_action_s_message_has_its_fields(kind: Any) -> None:
    shared = {"tab", "timeout_ms"}
    assert set(getattr(wire, kind.__name__).DESCRIPTOR.fields_by_name) | shared == set(kind.__struct_fields__) | shared


def test_values_of_all_kinds_come_back() -> None:
    record = DownloadRecord(
        id="D1",
        name="a.csv",
        source="https://a.example/a.csv",
        declared_type=None,
        detail="text",
        size=3,
        digest="00",
        folder=Folder.QUARANTINE,
        reasons=(Reason.SCRIPT, Reason.POLYGLOT),
        finished_ms=12,
        complete=False,
    )
    outcome = actions.ActionOutcome(
        tab="t1",
        url="https://a.example/",
        title="A",
        status=200,
        dialog=actions.Dialog(kind="confirm", message="Sure?"),
        new_tabs=(actions.TabView(tab="t2", url="about:blank", title="", active=True, opener="t1"),),
        downloads=("D1",),
        content=b"\x89PNG",
    )
    ask = views.SessionAsk(hosts=("a.example",), budget={"idle_ttl_ms": 5}, any_public_host=True)
    for value, message in (
        (record, wire.DownloadView()),
        (outcome, wire.ActionOutcome()),
        (ask, wire.CreateSessionRequest()),
        (OperatorInput(does=OperatorDoes.SCROLL, x=3, dy=-40, button=MouseButton.RIGHT), wire.OperatorInput()),
        (ObserveAsk(form=SnapshotForm.DOM, within=BUTTON, find="x"), wire.ObserveAsk()),
    ):
        sent = type(message).FromString(write(value, message).SerializeToString())
        assert read(sent, type(value)) == value


def test_what_is_no_action_is_refused_with_a_code() -> None:
    with pytest.raises(BadAction, match="missing"):
        read_action(wire.Action())
    with pytest.raises(BadAction, match="lacks"):
        read_action(wire.Action(click=wire.Click()))
    with pytest.raises(BadTarget):
        read_action(wire.Action(click=wire.Click(target=wire.ElementTarget(ref="e1", css="a"))))
    with pytest.raises(views.BadRequest, match="wait is not one of"):
        read_action(wire.Action(navigate=wire.Navigate(url="https://a.example/", wait=77)))  # type: ignore[arg-type]
    with pytest.raises(views.BadRequest, match="OperatorInput needs does"):
        read(wire.OperatorInput(x=1), OperatorInput)


def test_a_secret_is_in_no_text_of_the_value() -> None:
    action = read_action(write_action(FULL[8]))
    assert isinstance(action, actions.Type)
    assert "swordfish" not in repr(action)
    assert action.secret is not None
    assert action.secret.reveal() == "swordfish"
    assert isinstance(msgspec.structs.asdict(action)["secret"], Secret)
