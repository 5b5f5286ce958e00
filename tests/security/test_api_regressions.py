"""Faults that were found by attacking the API once; each attack is made again here."""

import re
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually_sync
from palyra.errors import PalyraError
from palyra.limits import MAX_PENDING_APPROVALS_PER_PRINCIPAL


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, '[access]\noperators = ["user:operator", "user:second"]\n')


def _code_of(act: object) -> str:
    with pytest.raises(PalyraError) as refused:
        act()  # type: ignore[operator]
    return str(refused.value.as_dict()["code"])


def _connect(daemon: Daemon) -> socket.socket:
    address = urlsplit(daemon.url)
    return socket.create_connection((address.hostname, address.port), timeout=10)


@pytest.mark.promise("P-limits")
def test_headers_without_end_are_cut_off(place: Place) -> None:
    with place.daemon() as daemon:
        with _connect(daemon) as flood:
            flood.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
            with pytest.raises(OSError):
                for _ in range(64):
                    flood.sendall(b"x-fill: " + b"a" * 65_536 + b"\r\n")
                    time.sleep(0.005)
        with _connect(daemon) as one:
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nx-fill: " + b"a" * 200_000 + b"\r\n\r\n")
            try:
                answer = one.recv(4096)
            except ConnectionError:
                answer = b""
            assert b" 200 " not in answer
        with daemon.client() as client:
            client.health()


def test_an_operator_cannot_approve_its_own_request_in_another_name(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        with pytest.raises(PalyraError) as asked:
            client.call("fs.write", {"path": "a", "content": "x"}, principal="user:operator")
        approval = asked.value.details["approval_id"]
        assert _code_of(lambda: client.approve(approval, decided_as="user:second")) == "approval.self"


@pytest.mark.promise("P-tokens")
def test_a_token_cannot_outlive_the_calendar(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        assert _code_of(lambda: client.create_token("agent:x", ttl_seconds=2**53 - 1)) == "http.wrong_shape"
        assert client.tokens()


@pytest.mark.promise("P-floods")
def test_one_agent_cannot_hide_anothers_requests(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        codes = []
        for number in range(MAX_PENDING_APPROVALS_PER_PRINCIPAL + 3):
            arguments = {"path": f"f{number}", "content": "x"}
            codes.append(_code_of(lambda a=arguments: client.call("fs.write", a, principal="agent:flood")))
        assert codes.count("call.needs_approval") == MAX_PENDING_APPROVALS_PER_PRINCIPAL
        assert codes[-1] == "approval.too_many_pending"
        assert _code_of(lambda: client.call("fs.write", {"path": "a", "content": "x"}, principal="agent:quiet")) == (
            "call.needs_approval"
        )
        assert any(waiting.principal == "agent:quiet" for waiting in client.approvals())
        assert f"palyra_approvals_pending {MAX_PENDING_APPROVALS_PER_PRINCIPAL + 1}.0" in client.metrics()


def test_the_events_of_a_call_that_asked_and_went_away_end(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        with pytest.raises(PalyraError) as asked:
            client.call("fs.write", {"path": "a", "content": "x"}, principal="agent:bot")
        kinds = [event.kind for event in client.events(asked.value.details["call_id"])]
        assert kinds == ["call.requested", "call.decided", "approval.requested"]


def test_stopping_answers_those_who_wait(place: Place) -> None:
    daemon = Daemon(place)
    answers: list[str] = []

    def wait() -> None:
        with daemon.client() as client:
            answers.append(
                _code_of(
                    lambda: client.call("fs.write", {"path": "a", "content": "x"}, wait_ms=60_000, principal="agent:b")
                )
            )

    waiting = threading.Thread(target=wait)
    waiting.start()
    followed: list[str] = []
    with daemon.client() as client:
        eventually_sync(lambda: client.approvals())
    call_id = place.palyra("journal", "tail", "--kind", "approval.requested", "--json").data["events"][0]["call"]

    def follow() -> None:
        with daemon.client() as client:
            followed.extend(event.kind for event in client.events(call_id))

    following = threading.Thread(target=follow)
    following.start()
    eventually_sync(lambda: followed)
    assert daemon.stop() == 0
    waiting.join(20)
    following.join(20)
    assert answers == ["call.needs_approval"] and not following.is_alive()


def test_small_words_are_exact(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        for field in ("session", "device", "channel"):
            act = lambda f=field: client.call("echo", {"text": "x"}, **{f: "abc\n"})  # noqa: E731
            assert _code_of(act) == "http.wrong_shape"
        with _connect(daemon) as raw:
            raw.sendall(b"PUT /v1/tools HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: raw.recv(4096), b"")).lower()
        assert b" 405 " in answer and re.search(rb"\r\nallow: [^\r]*get", answer)
        with _connect(daemon) as raw:
            raw.sendall(b"GET /v1/tools/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"http.no_such_route" in b"".join(iter(lambda: raw.recv(4096), b""))


@pytest.mark.promise("P-floods")
def test_rejected_tokens_are_counted_and_recorded_but_do_not_fill_the_journal(place: Place) -> None:
    with place.daemon() as daemon:
        guess = "plr_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + "a" * 43
        with daemon.client(guess) as stranger:
            for _ in range(20):
                assert _code_of(stranger.tools) == "token.rejected"
        with daemon.client() as client:
            assert "palyra_tokens_rejected_total 20.0" in client.metrics()
        events = place.palyra("journal", "tail", "--kind", "credential.rejected", "--json").data["events"]
        assert len(events) == 1
