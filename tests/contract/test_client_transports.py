"""What every transport of the client must do, over one application: sockets, asyncio and in-process alike."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.loopback import serving
from fakes.tiny_api import CALL, TOKEN, TinyApi
from palyra.client.client import AsyncClient, Client
from palyra.client.protocol import (
    ApiError,
    BadAnswer,
    BadRequestValue,
    ClientLimits,
    ClientTimeout,
    ConnectionLost,
    NeedsApprovalError,
    ResponseTooLarge,
)
from palyra.client.views import CallEvent
from palyra.errors import Denied, ExitCode, NeedsApproval, PalyraError, exit_code_of
from palyra.secret import Secret

LIMITS = ClientLimits(max_response_bytes=200_000, stream_idle_seconds=20)


class TransportClient:
    """One client, blocking or not, behind one blocking face."""

    def __init__(self, kind: str, api: TinyApi, url: str, **options: Any) -> None:
        self._runner: asyncio.Runner | None = None
        options = {"token": TOKEN, "limits": LIMITS, "timeout": 20.0, **options}
        match kind:
            case "blocking":
                self.client: Any = Client(url, **options)
            case "asgi":
                self.client = Client.in_process(api.app, **options)
            case "aio":
                self._runner = asyncio.Runner()
                self.client = AsyncClient(url, **options)
            case "asgi-async":
                self._runner = asyncio.Runner()
                self.client = AsyncClient.in_process(api.app, **options)

    def do(self, operation: str, *args: Any, **options: Any) -> Any:
        made = getattr(self.client, operation)(*args, **options)
        return made if self._runner is None else self._runner.run(made)

    def events(self, call_id: str, *, at_most: int | None = None, **options: Any) -> list[CallEvent]:
        if self._runner is None:
            return self._gather(call_id, at_most, options)
        return self._runner.run(self._gather_async(call_id, at_most, options))

    def _gather(self, call_id: str, at_most: int | None, options: dict[str, Any]) -> list[CallEvent]:
        events = []
        following = self.client.events(call_id, **options)
        for event in following:
            events.append(event)
            if len(events) == at_most:
                following.close()
        return events

    async def _gather_async(self, call_id: str, at_most: int | None, options: dict[str, Any]) -> list[CallEvent]:
        events = []
        following = self.client.events(call_id, **options)
        async for event in following:
            events.append(event)
            if len(events) == at_most:
                await following.aclose()
        return events

    def close(self) -> None:
        self.do("close")
        if self._runner is not None:
            self._runner.close()


@pytest.fixture
def api() -> TinyApi:
    return TinyApi()


@pytest.fixture(params=["blocking", "aio", "asgi", "asgi-async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, api: TinyApi) -> Iterator[str]:
    if kind.startswith("asgi"):
        yield ""
        return
    with serving(api.app) as address:
        yield address


@pytest.fixture
def make_client(kind: str, api: TinyApi, url: str) -> Iterator[Any]:
    made: list[TransportClient] = []

    def make(**options: Any) -> TransportClient:
        made.append(TransportClient(kind, api, url, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: Any) -> TransportClient:
    return make_client()  # type: ignore[no-any-return]


def test_a_call_goes_out_whole_and_comes_back_typed(client: TransportClient, api: TinyApi) -> None:
    call = client.do("call", "echo", {"text": "hé\n"}, run_id="r", session="s", principal="agent:a", wait_ms=5)
    assert (call.status, call.result, call.decision.policies) == ("succeeded", {"text": "hé\n"}, ("p",))
    assert call.document["field_of_tomorrow"] == 1
    seen = api.seen[-1]
    assert seen["body"] == {
        "tool": "echo",
        "arguments": {"text": "hé\n"},
        "run_id": "r",
        "session": "s",
        "principal": "agent:a",
        "wait_ms": 5,
    }
    assert seen["headers"]["authorization"] == f"Bearer {TOKEN}"
    assert seen["headers"]["content-type"] == "application/json"


def test_arguments_json_travels_as_typed(client: TransportClient, api: TinyApi) -> None:
    text = '{"a":1, "a":2, "n": 1.0}'
    assert client.do("call", "echo", arguments_json=text).result == text
    assert api.seen[-1]["body"] == {"tool": "echo", "arguments_json": text}
    with pytest.raises(BadRequestValue):
        client.do("call", "echo", {}, arguments_json="{}")


def test_remote_errors_keep_their_code_hint_exit_code_and_details(client: TransportClient) -> None:
    with pytest.raises(ApiError) as denied:
        client.do("call", "denied")
    assert denied.value.as_dict() == {
        "code": "call.denied",
        "message": "call.denied!",
        "hint": "do so",
        "details": {"call_id": CALL["call_id"], "message": "a detail named so"},
    }
    assert exit_code_of(denied.value) is ExitCode.DENIED
    assert denied.value.call is None and denied.value.call_id == CALL["call_id"]
    with pytest.raises(NeedsApprovalError) as asked:
        client.do("call", "asked")
    assert (asked.value.approval_id, asked.value.call_id) == ("01AP", "c")
    assert isinstance(asked.value, NeedsApproval) and exit_code_of(asked.value) is ExitCode.NEEDS_APPROVAL
    with pytest.raises(ApiError) as failed:
        client.do("call", "failed")
    assert failed.value.call is not None and failed.value.call.status == "failed"


def test_every_other_operation(client: TransportClient, api: TinyApi) -> None:
    assert client.do("call_status", "x").call_id == "x"
    assert client.do("cancel", "a b?c#d").call_id == "a b?c#d"
    assert (api.seen[-1]["method"], api.seen[-1]["query"]) == ("DELETE", {})
    assert [tool.name for tool in client.do("tools")] == ["echo", "sleep"]
    assert client.do("tool", "fs.read").capabilities == ("network",)
    assert client.do("start_run", {"calls": 3}).run_id == CALL["run_id"]
    assert api.seen[-1]["body"] == {"budget": {"calls": 3}}
    assert client.do("run", "r").budget == {"calls": {"cap": 3}}
    assert client.do("approvals")[0].tool == "fs.write"
    assert api.seen[-1]["query"] == {"state": "pending"}
    client.do("approvals", None)
    assert api.seen[-1]["query"] == {}
    assert client.do("approval", "a").state == "pending"
    decided = client.do(
        "approve", "a", scope="pattern", pattern={"p": 1}, ttl_seconds=9, reason="r", decided_as="user:o"
    )
    assert (decided.state, decided.decided_by) == ("approved", "user:o")
    assert api.seen[-1]["body"] == {
        "decision": "approve",
        "scope": "pattern",
        "pattern": {"p": 1},
        "ttl_seconds": 9,
        "reason": "r",
        "as": "user:o",
    }
    client.do("deny", "a", reason="no")
    assert api.seen[-1]["body"] == {"decision": "deny", "reason": "no"}
    made = client.do("create_token", "agent:a", scopes=("call",), ttl_seconds=5, label="l")
    assert made.token == Secret("plr_new") and "plr_new" not in repr(made)
    assert client.do("tokens")[0].label == "l"
    assert client.do("revoke_token", "t").revoked_at
    status = client.do("status")
    assert (status.version, status.document["journal"]) == ("1.2.3", {"head": 9})
    client.do("health")
    assert client.do("metrics") == "palyra_calls 1\n"
    with pytest.raises(PalyraError) as stopping:
        client.do("ready")
    assert stopping.value.code == "client.not_ready"


def test_events_come_in_order_to_the_last(client: TransportClient) -> None:
    events = client.events("c")
    assert [(event.id, event.kind, event.data) for event in events] == [
        (str(seq), f"step.{seq}", {"seq": seq}) for seq in range(1, 6)
    ]


def test_events_start_after_the_one_already_seen(client: TransportClient) -> None:
    assert [event.id for event in client.events("c", after="3")] == ["4", "5"]


def test_a_cut_stream_goes_on_after_its_last_whole_event(client: TransportClient, api: TinyApi) -> None:
    api.stream_cuts = 2
    assert [event.id for event in client.events("c")] == ["1", "2", "3", "4", "5"]
    followed = [seen["headers"].get("last-event-id") for seen in api.seen if seen["path"].endswith("/events")]
    assert followed == [None, "2", "4"]


def test_a_reader_that_leaves_ends_the_stream(client: TransportClient, api: TinyApi) -> None:
    assert [event.id for event in client.events("endless", at_most=1)] == ["1"]
    assert api.disconnected.wait(20)


def test_a_silent_stream_is_opened_again_where_it_left_off(make_client: Any, api: TinyApi) -> None:
    client = make_client(limits=ClientLimits(stream_idle_seconds=0.2))
    assert [event.id for event in client.events("endless", at_most=3)] == ["1", "2", "3"]


def test_events_of_an_unknown_call_are_refused_at_once(client: TransportClient, api: TinyApi) -> None:
    with pytest.raises(ApiError) as caught:
        client.events("unknown")
    assert caught.value.remote_code == "call.unknown"
    assert len(api.seen) == 1


@pytest.mark.parametrize("name", ["redirect", "text", "list", "wrong", "ok-but-500", "deep"])
def test_an_answer_of_another_kind_is_refused(client: TransportClient, api: TinyApi, name: str) -> None:
    with pytest.raises(BadAnswer):
        client.do("tool", name)
    assert len(api.seen) == 1


def test_an_impossible_exit_code_is_not_believed(client: TransportClient) -> None:
    with pytest.raises(ApiError) as caught:
        client.do("tool", "bad-exit")
    assert exit_code_of(caught.value) is ExitCode.FAILED
    assert (caught.value.hint, caught.value.details) == ("", {})


@pytest.mark.parametrize("name", ["large", "flood"])
def test_an_oversized_answer_is_cut_off(client: TransportClient, name: str) -> None:
    with pytest.raises(ResponseTooLarge):
        client.do("tool", name)
    assert client.do("tool", "still-works").name == "still-works"


def test_waiting_has_an_end(make_client: Any) -> None:
    client = make_client(timeout=0.1)
    with pytest.raises(ClientTimeout):
        client.do("call", "slow", {"seconds": 3600}, timeout_ms=50)
    # A call may honestly take its own timeout, and a person the time they were given.
    assert client.do("call", "slow", {"seconds": 0.3}, timeout_ms=20_000).status == "succeeded"
    assert client.do("call", "slow", {"seconds": 0.3}, timeout_ms=1, wait_ms=20_000).status == "succeeded"


def test_an_application_that_breaks_shows_as_an_error(client: TransportClient) -> None:
    with pytest.raises((BadAnswer, ConnectionLost)):
        client.do("tool", "broken")


@pytest.mark.parametrize("token", [None, "plr_wrong"])
def test_without_the_right_token_nothing_is_told(make_client: Any, token: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        make_client(token=token).do("status")
    assert caught.value.remote_code == "token.rejected"
    assert exit_code_of(caught.value) is ExitCode.DENIED
    assert not isinstance(caught.value, Denied)


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
def test_a_name_that_is_no_path_segment_is_not_sent(client: TransportClient, api: TinyApi, name: str) -> None:
    with pytest.raises(BadRequestValue):
        client.do("tool", name)
    assert api.seen == []


def test_names_from_outside_stay_one_segment(client: TransportClient, api: TinyApi) -> None:
    assert client.do("tool", "../tokens?x=1#y").name == "../tokens?x=1#y"
    assert api.seen[-1]["query"] == {}
