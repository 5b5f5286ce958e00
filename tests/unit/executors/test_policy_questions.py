"""What policy is asked about browser calls: one question for each host, secret, file and script, and no other."""

from typing import Any

import msgspec
import pytest

from palyra.browser.domain.session_api import SessionState, SessionView
from palyra.browser.settings import BrowserSettings
from palyra.egress.settings import EgressSettings
from palyra.executors.browser.arguments import HostNotAllowed, Reach
from palyra.executors.browser.policy_questions import (
    BrowserQuestions,
    RunHasSessions,
    SecretNotBound,
    bound_targets,
    ceiling_of,
    host_questions,
)
from palyra.executors.browser.session_registry import OwnedSession, SessionRegistry, session_entity
from palyra.ids import Principal
from palyra.pipeline.domain.spec import Asker
from palyra.policy.request import Entity, EntityDirectory, EntityRef

ANNA = Principal.parse("agent:anna")
ASKER = Asker(
    principal=ANNA,
    channel="api",
    run="R",
    directory=EntityDirectory(),
    workspace="/w",
    tool=Entity(uid=EntityRef("Tool", "browser.act")),
)
REACH = Reach(hosts=("shop.test", "*.cdn.test:8443"))
BOUND: Any = [{"secret_ref": "global/pin", "origins": ["https://shop.test", "https://elsewhere.test"]}]


def settings(**changes: Any) -> BrowserSettings:
    return msgspec.convert(changes, BrowserSettings)


def owned(number: int = 1) -> OwnedSession:
    view = SessionView(
        session_id=f"S{number}",
        principal=str(ANNA),
        state=SessionState.OPEN,
        created_ms=0,
        ends_ms=1,
        idle_ends_ms=1,
    )
    return OwnedSession(view, principal=ANNA, run="R", channel="api", reach=REACH, approved=False)


@pytest.fixture
def book() -> SessionRegistry:
    book = SessionRegistry()
    book.enter(owned())
    return book


def questions(book: SessionRegistry, **changes: Any) -> BrowserQuestions:
    def file_entity(_: EntityDirectory, tool: str) -> Entity:
        return Entity(uid=EntityRef("Tool", tool))

    return BrowserQuestions(settings(**changes), REACH, book, file_entity=file_entity)


def asked(found: Any) -> list[tuple[str, str]]:
    return [(one.action, one.resource.uid.id) for one in found]


def test_the_browser_s_own_hosts_take_the_place_of_those_of_egress() -> None:
    egress = EgressSettings(allowed_hosts=("a.test",))
    assert ceiling_of(settings(), egress).hosts == ("a.test",)
    assert ceiling_of(settings(allowed_hosts=["b.test"]), egress).hosts == ("b.test",)


def test_every_host_and_port_is_a_question_and_a_star_stays_one() -> None:
    session = session_entity("new", ANNA, REACH)
    found = host_questions(ASKER, session, REACH)
    assert asked(found) == [
        ("browser.navigate", "shop.test:80"),
        ("browser.navigate", "shop.test:443"),
        ("browser.navigate", "*.cdn.test:8443"),
    ]
    assert [one.context["scheme"] for one in found] == ["http", "https", "http"]
    everything = host_questions(ASKER, session, Reach(any_public_host=True), approved=True)
    assert asked(everything) == [("browser.navigate", "*:80"), ("browser.navigate", "*:443")]
    assert all(one.context["approved"] for one in everything)


def test_a_step_is_asked_for_all_that_it_would_do(book: SessionRegistry) -> None:
    steps = [
        {"action": "navigate", "url": "https://shop.test/a"},
        {"action": "navigate", "url": "https://shop.test/b"},
        {"action": "upload", "target": "e1", "paths": ["a.txt"]},
        {"action": "evaluate", "expression": "1"},
    ]
    found = questions(book).of_act(ASKER, {"session": "S1", "actions": steps})
    assert found.session is not None and found.session.uid.id == "S1"
    assert asked(found.questions) == [
        ("browser.navigate", "shop.test:443"),
        ("tool.execute", "fs.read"),
        ("browser.upload", "S1"),
        ("browser.evaluate", "S1"),
    ]


def test_an_address_that_the_session_does_not_reach_is_no_question(book: SessionRegistry) -> None:
    with pytest.raises(HostNotAllowed):
        questions(book).of_navigate(ASKER, {"session": "S1", "url": "https://other.test/"})


def test_a_secret_is_asked_for_where_it_is_bound_and_the_session_reaches(book: SessionRegistry) -> None:
    ((origin, target),) = bound_targets(settings(bindings=BOUND), "global/pin", REACH)
    assert (origin, target.host, target.port) == ("https://shop.test", "shop.test", 443)
    with pytest.raises(SecretNotBound, match="bound to no origin"):
        bound_targets(settings(), "global/pin", REACH)
    with pytest.raises(SecretNotBound, match="does not reach"):
        bound_targets(settings(bindings=BOUND), "global/pin", Reach(hosts=("b.test",)))


def test_saving_a_download_is_asked_like_writing_the_file(book: SessionRegistry) -> None:
    of = questions(book).of_downloads
    assert of(ASKER, {"session": "S1"}).questions == ()
    assert asked(of(ASKER, {"session": "S1", "save": "D1", "path": "x"}).questions) == [("tool.execute", "fs.write")]


def test_a_file_is_asked_about_with_the_device_and_session_of_the_call(book: SessionRegistry) -> None:
    """Else a rule that forbids devices to write files would not stop one that saves a download."""
    asker = msgspec.structs.replace(ASKER, device="D7", session="s1")
    (saving,) = questions(book).of_downloads(asker, {"session": "S1", "save": "D1", "path": "x"}).questions
    assert (saving.context["device"], saving.context["session"]) == (EntityRef("Device", "D7"), "s1")


def test_a_run_has_only_so_many_sessions(book: SessionRegistry) -> None:
    for number in range(2, 99):
        book.enter(owned(number))
    with pytest.raises(RunHasSessions):
        questions(book).of_open(ASKER, {"hosts": ["shop.test"]})
