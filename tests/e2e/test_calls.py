"""The promises of the first five minutes, against a real daemon process and the real command line."""

import json
import threading
from pathlib import Path

import pytest

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually_sync

ECHO = ("call", "echo", "--input", '{"text":"hi"}', "--json")
WRITE = '{"path":"a.txt","content":"hello"}'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.promise("P-evidence")
def test_echo_returns_result_decision_and_an_attestation_that_verifies(place: Place, tmp_path: Path) -> None:
    with place.daemon():
        data = place.palyra(*ECHO).data
    assert data["result"] == {"text": "hi"}
    assert data["decision"]["outcome"] == "allow" and data["decision"]["policies"] == ["baseline.allowed-tools"]
    saved = tmp_path / "attestation.json"
    text = json.dumps(data["attestation"], indent=2)
    saved.write_text(text)
    # Offline: the daemon is gone, and only the public key is asked for.
    public = str(place.state / "signing.pub")
    accepted = place.palyra("attest", "verify", str(saved), "--public-key", public, "--json")
    assert accepted.status == 0, accepted.stderr
    for at in range(0, len(text), 7):
        if text[at].isspace():
            continue
        saved.write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])
        refused = place.palyra("attest", "verify", str(saved), "--public-key", public, "--json")
        assert refused.status != 0, f"a change at byte {at} went unnoticed"
        if at > 40:
            break
    saved.write_text(json.dumps({"ok": True, "data": data}))
    assert place.palyra("attest", "verify", str(saved)).status == 0
    data["result"]["text"] = "ho"
    saved.write_text(json.dumps({"ok": True, "data": data}))
    assert place.palyra("attest", "verify", str(saved)).status != 0


@pytest.mark.promise("P-one-pipeline")
def test_the_same_works_without_a_daemon(place: Place) -> None:
    answer = place.palyra(*ECHO)
    assert answer.status == 0 and answer.data["result"] == {"text": "hi"}
    assert place.palyra("journal", "verify", "--json").status == 0


@pytest.mark.promise("P-approval-once")
def test_a_write_needs_approval_and_then_runs_exactly_once(place: Place) -> None:
    with place.daemon():
        asked = place.palyra("call", "fs.write", "--input", WRITE, "--json")
        assert asked.status == 4 and asked.error["code"] == "call.needs_approval"
        approval = asked.error["details"]["approval_id"]
        shown = place.palyra("approvals", "show", approval, "--json").data
        assert shown["arguments"] == json.loads(WRITE) and shown["touches"]["paths"] == ["a.txt"]
        own = place.palyra("approvals", "approve", approval, "--yes", "--as", "agent:cli", "--json")
        assert own.status == 3 and own.error["code"] == "approval.self"
        assert place.palyra("approvals", "approve", approval, "--yes").status == 0
        for other, code in [
            ('{"path":"a.txt","content":"hello!"}', "call.needs_approval"),
            ('{"path":"a.txt","content":"x","content":"hello"}', "json.duplicate_key"),
        ]:
            refused = place.palyra("call", "fs.write", "--input", other, "--json")
            assert refused.status in (2, 4) and refused.error["code"] == code
        ran = place.palyra("call", "fs.write", "--input", WRITE, "--json")
        assert ran.status == 0 and ran.data["approval_id"] == approval
        assert (place.state / "workspace" / "a.txt").read_text() == "hello"
        assert place.palyra("call", "fs.write", "--input", WRITE, "--json").status == 4
        twice = place.palyra("approvals", "approve", approval, "--yes", "--json")
        assert twice.status != 0 and twice.error["code"] == "approval.already_decided"


def test_a_number_in_another_spelling_is_not_the_approved_call(place: Place) -> None:
    with place.daemon():
        (place.state / "workspace" / "a.txt").write_text("hello")
        asked = place.palyra("call", "fs.read", "--input", '{"path":"a.txt","limit":1}', "--json")
        assert place.palyra("approvals", "approve", asked.error["details"]["approval_id"], "--yes").status == 0
        other = place.palyra("call", "fs.read", "--input", '{"path":"a.txt","limit":1.0}', "--json")
        assert other.status == 2 and other.error["code"] == "json.ambiguous_number"
        assert place.palyra("call", "fs.read", "--input", '{"path":"a.txt","limit":1}').status == 0


def test_a_waiting_call_goes_on_when_somebody_approves(place: Place) -> None:
    with place.daemon() as daemon:
        answers: list[int] = []

        def wait() -> None:
            answers.append(place.palyra("call", "fs.write", "--input", WRITE, "--wait", "50").status)

        caller = threading.Thread(target=wait)
        caller.start()
        with daemon.client() as client:
            waiting = eventually_sync(lambda: client.approvals())
            client.approve(waiting[0].id)
        caller.join()
        assert answers == [0]


def test_tokens_bind_a_caller_to_its_principal(place: Place) -> None:
    with place.daemon() as daemon:
        made = place.palyra("token", "create", "--principal", "agent:bot", "--json").data
        with daemon.client(made["token"]) as bot:
            assert bot.call("echo", {"text": "x"}).principal == "agent:bot"
            asked = _error_of(lambda: bot.call("fs.write", json.loads(WRITE)))
            approval = asked["details"]["approval_id"]
            assert _error_of(lambda: bot.call("echo", {"text": "x"}, principal="user:operator"))["code"] == (
                "token.scope_missing"
            )
            assert _error_of(lambda: bot.approve(approval))["code"] == "token.scope_missing"
            assert _error_of(lambda: bot.create_token("agent:bot"))["code"] == "token.scope_missing"
            place.palyra("token", "revoke", made["token_id"])
            assert _error_of(lambda: bot.call("echo", {"text": "x"}))["code"] == "token.rejected"
        with daemon.client("plr_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + "a" * 43) as stranger:
            assert _error_of(stranger.tools)["code"] == "token.rejected"


def test_another_principals_calls_and_runs_look_missing(place: Place) -> None:
    with place.daemon() as daemon:
        tokens = [
            place.palyra("token", "create", "--principal", f"agent:{name}", "--json").data["token"] for name in "ab"
        ]
        with daemon.client(tokens[0]) as alice, daemon.client(tokens[1]) as bob:
            made = alice.call("echo", {"text": "x"})
            assert alice.call_status(made.call_id).result == {"text": "x"}
            assert _error_of(lambda: bob.call_status(made.call_id))["code"] == "call.unknown"
            assert _error_of(lambda: bob.cancel(made.call_id))["code"] == "call.unknown"
            assert _error_of(lambda: list(bob.events(made.call_id)))["code"] == "call.unknown"
            assert _error_of(lambda: bob.run(made.run_id))["code"] == "run.unknown"
            assert _error_of(lambda: bob.call("echo", {"text": "x"}, run_id=made.run_id))["code"] == "run.unknown"


def test_a_call_can_be_followed_and_cancelled(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        ended: list[str] = []

        def sleeper() -> None:
            with daemon.client() as other:
                ended.append(_error_of(lambda: other.call("sleep", {"seconds": 60}, timeout_ms=120_000))["code"])

        thread = threading.Thread(target=sleeper)
        thread.start()
        running = eventually_sync(
            lambda: place.palyra("journal", "tail", "--kind", "call.started", "--json").data["events"]
        )
        call_id = running[0]["call"]
        seen: list[str] = []
        for event in client.events(call_id):
            seen.append(event.kind)
            if event.kind == "call.started":
                assert client.cancel(call_id).status == "cancelled"
        thread.join()
        assert seen == ["call.requested", "call.decided", "call.started", "call.finished"]
        assert ended == ["call.cancelled"]


def test_health_readiness_metrics_and_an_orderly_stop(place: Place) -> None:
    daemon = Daemon(place)
    with daemon.client() as client:
        client.health()
        client.ready()
        client.call("echo", {"text": "x"})
        assert 'palyra_calls_total{state="succeeded",tool="echo"} 1.0' in client.metrics()
    second = place.palyra("up", "--port", "0", "--json")
    assert second.status == 6 and second.error["code"] == "daemon.already_running"
    assert daemon.stop() == 0
    verified = place.palyra("journal", "verify", "--json")
    assert verified.status == 0
    kinds = [event["kind"] for event in place.palyra("journal", "tail", "-n", "3", "--json").data["events"]]
    assert kinds[-1] == "daemon.stopped"


def test_settings_and_listeners_that_are_unsafe_are_refused(tmp_path: Path) -> None:
    place = Place(tmp_path, '[daemon]\nhost = "0.0.0.0"\n')
    refused = place.palyra("up", "--json")
    assert refused.status == 2 and refused.error["code"] == "daemon.insecure_bind"


def _error_of(act: object) -> dict[str, object]:
    from palyra.errors import PalyraError

    with pytest.raises(PalyraError) as refused:
        act()  # type: ignore[operator]
    return refused.value.as_dict()


def test_a_standing_yes_can_be_taken_back(place: Place) -> None:
    with place.daemon():
        asked = place.palyra("call", "fs.write", "--input", WRITE, "--json").error["details"]["approval_id"]
        approve = ("approvals", "approve", asked, "--yes", "--scope", "timeboxed", "--ttl", "600", "--json")
        assert "with any arguments" in place.palyra(*approve).data["meaning"]
        assert place.palyra("call", "fs.write", "--input", WRITE).status == 0
        other = '{"path":"b.txt","content":"y"}'
        assert place.palyra("call", "fs.write", "--input", other).status == 0
        assert place.palyra("approvals", "withdraw", asked, "--reason", "enough").status == 0
        assert place.palyra("call", "fs.write", "--input", '{"path":"c.txt","content":"y"}').status == 4
