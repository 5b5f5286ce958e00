"""Attacks on whose session it is and what it leaves behind: other principals, killed daemons, time, and the disk."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from fakes.browserd_harness import ANNA, BEN, OPERATOR, BrowserdHarness, browserd
from fakes.eventually import eventually
from fakes.processes import descendants
from fakes.web_application import PASSWORD, USER
from palyra.browser.domain import limits, session_api
from palyra.browser.domain.action import Click, ElementTarget, Evaluate, Navigate, Type
from palyra.browser.domain.budget import SessionOver
from palyra.browser.domain.profile import NoSuchProfile
from palyra.browser.domain.session_api import Caller, SessionAsk, WatchAsk
from palyra.browser.engine.cdp_connection import BrowserEnded
from palyra.browser.engine.chromium import NetworkServiceDied
from palyra.browser.engine.process_inspection import start_time
from palyra.browser.service.access import SOCKET_FOLDER, SOCKET_NAME, TOKEN_NAME
from palyra.browser.service.client import BrowserClient
from palyra.browser.service.session_manager import ProfileInUse
from palyra.browser.service.wire import ERROR_KEY, decode_error
from palyra.ids import Ulid
from palyra.wire.browser.v1 import browser_pb2 as wire

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = wire.DESCRIPTOR.services_by_name["BrowserService"].methods
# Those that name nothing of anybody's: what they show or make is the asker's own.
OF_THE_ASKER = {"Health", "ListSessions", "ListProfiles", "CreateProfile"}
# Those that are about all profiles at once.
OF_OPERATORS = {"FollowProfiles", "AcceptProfiles"}
# To somebody else a session or profile is not there; and what only operators do nobody else does with any.
NOT_THERE = {"browser.unknown_session", "browser.unknown_profile", "browser.operator_only"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrowserdHarness]:
    async with browserd(tmp_path_factory.mktemp("sessions")) as harness:
        yield harness


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nothing_left(harness: BrowserdHarness) -> AsyncIterator[None]:
    """What one test opened is not there in the next."""
    yield
    for session in await harness.client.sessions(OPERATOR):
        await harness.client.close_session(OPERATOR, session.session_id)


async def refusal(harness: BrowserdHarness, method: Any, request: Any) -> tuple[str, str, str]:
    """Status, details and the whole error of a call that is refused, as they come over the socket."""
    channel = harness.client._channel
    path = f"/palyra.browser.v1.BrowserService/{method.name}"
    given = {"metadata": harness.client._metadata, "timeout": 60}
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        if method.server_streaming:
            async for _ in channel.unary_stream(path)(request.SerializeToString(), **given):
                pass
        else:
            await channel.unary_unary(path)(request.SerializeToString(), **given)
    metadata = dict(refused.value.trailing_metadata() or ())
    return refused.value.code().name, refused.value.details() or "", bytes(metadata[ERROR_KEY]).decode()


def asked(method: Any, caller: Caller, ids: dict[str, str]) -> Any:
    request = getattr(wire, method.input_type.name)()
    request.caller.principal, request.caller.operator = caller.principal, caller.operator
    for name, value in ids.items():
        if name in request.DESCRIPTOR.fields_by_name:
            setattr(request, name, value)
    return request


@pytest.mark.promise("P-own-only")
async def test_to_another_principal_every_session_and_profile_looks_like_none(harness: BrowserdHarness) -> None:
    """Over the service's own description: a request that is added later is tried here, or fails here."""
    client = harness.client
    profile = await client.create_profile(ANNA, "work")
    session = (await harness.open(profile_id=profile.profile_id)).session_id
    await client.navigate(ANNA, session, Navigate(url=harness.url("/")))
    before = (len(harness.site.requests), len(await client.events(ANNA, session)))
    real = {"session_id": session, "profile_id": profile.profile_id, "download_id": str(Ulid.new())}
    none = {name: str(Ulid.new()) for name in real}
    tried = set()
    for method in METHODS:
        fields = wire.DESCRIPTOR.message_types_by_name[method.input_type.name].fields_by_name
        if method.name in OF_OPERATORS:
            document = (await refusal(harness, method, asked(method, BEN, {})))[2]
            assert decode_error(document.encode()).code == "browser.operator_only", method.name
        if not {"session_id", "profile_id"} & set(fields):
            continue
        tried.add(method.name)
        status, details, document = await refusal(harness, method, asked(method, BEN, real))
        for name, value in real.items():
            document = document.replace(value, none[name])
        assert (status, details, document) == await refusal(harness, method, asked(method, BEN, none)), method.name
        assert decode_error(document.encode()).code in NOT_THERE, method.name
        # Nor does a caller who leaves out who they are get further.
        assert json.loads((await refusal(harness, method, asked(method, Caller(), real)))[2])["code"] in (
            *("principal.malformed", "browser.operator_only"),
        )
    assert tried == {method.name for method in METHODS} - OF_THE_ASKER - OF_OPERATORS
    assert (len(harness.site.requests), len(await client.events(ANNA, session))) == before
    assert await client.sessions(BEN) == () and await client.profiles(BEN) == ()
    assert [each.session_id for each in await client.profiles(ANNA)] == [session]
    await client.close_session(ANNA, session, discard=True)
    await client.delete_profile(ANNA, profile.profile_id)


async def test_an_ended_session_is_told_to_its_owner_and_to_nobody_else(harness: BrowserdHarness) -> None:
    session = (await harness.open()).session_id
    await harness.client.close_session(ANNA, session)
    with pytest.raises(SessionOver):
        await harness.client.get_session(ANNA, session)
    get = next(method for method in METHODS if method.name == "GetSession")
    assert "browser.unknown_session" in (await refusal(harness, get, asked(get, BEN, {"session_id": session})))[2]


async def log_in(harness: BrowserdHarness, session: str) -> None:
    await harness.client.navigate(ANNA, session, Navigate(url=harness.url("/login")))
    report = await harness.client.act(
        ANNA,
        session,
        [
            Type(target=ElementTarget(css="[name=user]"), text=USER),
            Type(target=ElementTarget(css="[name=password]"), text=PASSWORD),
            Click(target=ElementTarget(css="button")),
            Evaluate(expression="document.cookie = 'only=this-session; path=/'"),
        ],
    )
    assert report.problem is None and report.outcomes[2].url == harness.url("/welcome")


WHAT_IS_THERE = """new Promise(done => setTimeout(function look() {
  if (indexed.textContent) done([local.textContent, indexed.textContent, document.cookie]); else setTimeout(look, 20);
}))"""


async def what_is_there(harness: BrowserdHarness, caller: Caller, session: str) -> Any:
    """At the page for those who are logged in: what is in local storage, a database and cookies. None to strangers."""
    outcome = await harness.client.navigate(caller, session, Navigate(url=harness.url("/welcome")))
    if outcome.url != harness.url("/welcome"):
        return None
    report = await harness.client.act(caller, session, [Evaluate(expression=WHAT_IS_THERE)])
    assert report.problem is None, report.problem
    return json.loads(report.outcomes[0].value_json)


@pytest.mark.promise("P-browser-profile")
async def test_a_login_is_there_again_in_the_same_profile_and_nowhere_else(harness: BrowserdHarness) -> None:
    client = harness.client
    profile = (await client.create_profile(ANNA, "shop")).profile_id
    first = (await harness.open(profile_id=profile)).session_id
    await log_in(harness, first)
    with pytest.raises(ProfileInUse):
        await harness.open(profile_id=profile)
    with pytest.raises(ProfileInUse):
        await client.reset_profile(ANNA, profile)
    closed = await client.close_session(ANNA, first)
    assert (closed.saved, closed.revision, closed.problem_code) == (True, 1, "")
    kept = next((harness.parts._state.root / "browser" / "profiles").glob(f"{profile}*")).read_bytes()
    assert PASSWORD.encode() not in kept and b"bicycle" not in kept and b"shop.test" not in kept

    again = await harness.open(profile_id=profile)
    assert again.persistent
    assert [tab.url for tab in await client.tabs(ANNA, again.session_id)] == [harness.url("/welcome")]
    local, indexed, cookies = await what_is_there(harness, ANNA, again.session_id)
    assert (int(local) >= 1, indexed, cookies) == (True, "a blue bicycle", "only=this-session")
    # What is discarded is not kept: the profile stays what it was.
    await client.act(ANNA, again.session_id, [Navigate(url=harness.url("/logout"))])
    assert not (await client.close_session(ANNA, again.session_id, discard=True)).saved

    other = (await client.create_profile(BEN, "shop")).profile_id
    for caller, ask in (
        (ANNA, {}),
        (BEN, {"profile_id": other}),
        (ANNA, {"profile_id": (await client.create_profile(ANNA, "private", private=True)).profile_id}),
    ):
        session = (await harness.open(caller, **ask)).session_id
        assert await what_is_there(harness, caller, session) is None
        await client.close_session(caller, session)
    with pytest.raises(NoSuchProfile):
        await harness.open(BEN, profile_id=profile)
    await client.reset_profile(ANNA, profile)
    session = (await harness.open(profile_id=profile)).session_id
    assert await what_is_there(harness, ANNA, session) is None
    await client.close_session(ANNA, session)


@pytest.mark.promise("P-browser-profile")
async def test_a_private_profile_keeps_nothing(harness: BrowserdHarness) -> None:
    client = harness.client
    private = (await client.create_profile(ANNA, "nothing kept", private=True)).profile_id
    for _ in range(2):
        session = await harness.open(profile_id=private)
        assert not session.persistent
        assert await what_is_there(harness, ANNA, session.session_id) is None
        await log_in(harness, session.session_id)
        assert not (await client.close_session(ANNA, session.session_id)).saved
    (view,) = [each for each in await client.profiles(ANNA) if each.profile_id == private]
    assert (view.revision, view.size, view.session_id) == (0, 0, "")


@pytest.mark.promise("P-browser-profile")
async def test_storage_state_goes_out_and_into_another_session(harness: BrowserdHarness) -> None:
    client = harness.client
    first = (await harness.open()).session_id
    await log_in(harness, first)
    document = await client.export_storage_state(ANNA, first)
    state = json.loads(document)
    assert {cookie["name"] for cookie in state["cookies"]} == {"sid", "only"}
    assert [origin["origin"] for origin in state["origins"]] == [harness.site.origin()]
    await client.close_session(ANNA, first)
    second = (await harness.open()).session_id
    report = await client.import_storage_state(ANNA, second, document)
    assert (report.cookies, report.origins, report.left_out) == (2, 1, ())
    assert len(await client.tabs(ANNA, second)) == 1
    paths = len(harness.site.requests)
    local, _, cookies = await what_is_there(harness, ANNA, second)
    assert int(local) >= 1 and cookies == "only=this-session"
    # Nothing but the visit itself reached the site: storage went in without it.
    assert [path for _, _, path in harness.site.requests[paths:] if "favicon" not in path] == ["/welcome"]
    elsewhere = json.dumps({"cookies": [], "origins": [{"origin": "http://evil.test", "localStorage": [_ITEM]}]})
    refused = await refusal(
        harness,
        next(method for method in METHODS if method.name == "ImportStorageState"),
        wire.ImportStorageStateRequest(
            caller=wire.Caller(principal="agent:anna"), session_id=second, document=elsewhere.encode()
        ),
    )
    assert "egress.host_not_allowed" in refused[2]
    await client.close_session(ANNA, second)


_ITEM = {"name": "a", "value": "b"}


@pytest.mark.promise("P-browser-ends")
async def test_time_ends_a_session_with_everything_of_it(harness: BrowserdHarness) -> None:
    client = harness.client
    profile = (await client.create_profile(ANNA, "timed")).profile_id
    for reason, ask, ahead in (
        ("idle", {"budget": {"idle_ttl_ms": 400_000}}, 401.0),
        ("lifetime", {"budget": {"max_session_lifetime_ms": 1_500_000}}, 1_501.0),
    ):
        session = (await harness.open(profile_id=profile, **ask)).session_id
        process = harness.parts.manager.find(ANNA, session).process
        harness.clock.ahead += ahead
        # Checked on every call, before the cleanup comes along.
        with pytest.raises(SessionOver) as over:
            await client.navigate(ANNA, session, Navigate(url=harness.url("/")))
        assert over.value.details["reason"] == reason
        await process.ended.wait()

        async def is_closed() -> bool:
            return not (await client.profiles(ANNA))[-1].session_id

        await eventually(is_closed)
    assert next(each for each in await client.profiles(ANNA) if each.profile_id == profile).revision == 2
    assert await client.sessions(ANNA) == ()


@pytest.mark.promise("P-browser-ends")
async def test_the_cleanup_ends_what_nobody_asks_for(harness: BrowserdHarness) -> None:
    assert limits.SWEEP_SECONDS == 15.0
    session = (await harness.open(budget={"idle_ttl_ms": 500_000})).session_id
    # A person who looks on does not keep it alive, nor does its owner's looking it up.
    watching = harness.client.watch(OPERATOR, session, WatchAsk(frames=False))
    await anext(watching)
    harness.clock.ahead += 400.0
    await harness.client.get_session(ANNA, session)
    assert harness.parts.manager.sweep() == 0
    harness.clock.ahead += 101.0
    assert harness.parts.manager.sweep() == 1
    last = [each async for each in watching][-1]
    assert getattr(last, "kind", "") == session_api.CLOSED and getattr(last, "text", "") == "idle"
    assert await harness.client.sessions(ANNA) == ()


async def test_a_browser_that_dies_ends_its_session_with_a_code(harness: BrowserdHarness) -> None:
    session = (await harness.open()).session_id
    process = harness.parts.manager.find(ANNA, session).process
    os.kill(process.pid, signal.SIGKILL)
    await process.ended.wait()
    # The whole tree dies; which of its processes is noticed first is the kernel's choice.
    with pytest.raises((BrowserEnded, NetworkServiceDied)):
        await harness.client.get_session(ANNA, session)

    async def none_is_left() -> bool:
        return not await harness.client.sessions(OPERATOR)

    await eventually(none_is_left)


def networks_in_use() -> set[str]:
    return networks_of(int(each.name) for each in Path("/proc").glob("[0-9]*"))


def networks_of(processes: Iterable[int]) -> set[str]:
    """Of those that are still there."""
    found = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
    return found


@pytest.mark.promise("P-tokens")
async def test_the_socket_is_for_its_owner_alone(harness: BrowserdHarness) -> None:
    folder = harness.parts._state.path(SOCKET_FOLDER)
    modes = {name: (folder / name).stat().st_mode & 0o777 for name in (SOCKET_NAME, TOKEN_NAME)}
    assert modes == {SOCKET_NAME: 0o600, TOKEN_NAME: 0o600} and folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.promise("P-browser-ends")
async def test_a_killed_daemon_leaves_nothing_after_five_seconds_or_at_the_next_start(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    state = tmp_path / "state"
    words = [sys.executable, "-m", "palyra.cli.browserd", "--state-dir", str(state), "--json"]
    environment = {**os.environ, "PALYRA_BROWSER__READY": "1"}

    def start() -> "subprocess.Popen[str]":
        child = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["ok"]
        return child

    daemon = await asyncio.to_thread(start)
    async with BrowserClient.at(state / SOCKET_FOLDER) as client:
        session = (await client.create_session(ANNA, SessionAsk())).session_id
    # A spare may be being started meanwhile, and what helps with that comes and goes.
    processes = {pid: began for pid in descendants(daemon.pid) if (began := start_time(pid)) is not None}
    assert len(processes) > 5
    networks = networks_of(processes)
    assert len(networks) > 1
    assert (state / "browser" / "sessions" / session).is_dir()
    daemon.kill()
    daemon.wait()
    killed = time.monotonic()
    # The kernel's own doing; nothing here helps. The product promises five seconds on a machine that is not this busy:
    # the soak test holds it to that.
    await eventually(lambda: not [pid for pid in processes if start_time(pid) == processes[pid]])
    record_property("seconds_until_all_was_gone", round(time.monotonic() - killed, 3))
    # Nobody is left in a network of theirs, so the guards' listeners are gone with these; and nobody answers at the
    # daemon's own socket.
    assert not networks_in_use() & (networks - {os.readlink("/proc/self/ns/net")})
    with socket.socket(socket.AF_UNIX) as knocking, pytest.raises(OSError):
        knocking.connect(str(state / SOCKET_FOLDER / SOCKET_NAME))
    again = await asyncio.to_thread(start)
    try:
        assert list((state / "browser" / "sessions").iterdir()) == []
        async with BrowserClient.at(state / SOCKET_FOLDER) as client:
            assert await client.sessions(OPERATOR) == ()
            # It still can.
            await client.create_session(ANNA, SessionAsk())
        again.terminate()
        assert await asyncio.to_thread(again.wait, 60) == 0
        assert not (state / SOCKET_FOLDER / SOCKET_NAME).exists()
        assert list((state / "browser" / "processes").iterdir()) == []
    finally:
        again.kill()
        again.wait()
        for child in (daemon, again):
            assert child.stdout is not None
            child.stdout.close()
