"""Policy files edited under a running daemon, and proposed ones tried on the past."""

from pathlib import Path

import pytest

from fakes.daemon import Place
from fakes.eventually import eventually_sync

FORBID_SLEEP = '@id("no-sleep")\nforbid (principal, action == Action::"tool.execute", resource == Tool::"sleep");\n'
BROKEN = '@id("broken")\nforbid (principal, action == Action::"tool.execute"\n  resource);\n'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _wait_for(place: Place, kind: str) -> dict[str, object]:
    found = eventually_sync(lambda: place.palyra("journal", "tail", "--kind", kind, "--json").data["events"])
    event: dict[str, object] = found[-1]
    return event


@pytest.mark.promise("P-policy-reload")
def test_a_broken_file_leaves_the_old_policies_in_force(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        assert client.call("sleep", {"seconds": 0}).status == "succeeded"
        (place.policies / "sleep.cedar").write_text(FORBID_SLEEP)
        _wait_for(place, "policy.swapped")
        assert place.palyra("call", "sleep", "--input", '{"seconds":0}').status == 3
        before = client.status().document["policy"]["bundle_digest"]
        (place.policies / "broken.cedar").write_text(BROKEN)
        rejected = _wait_for(place, "policy.rejected")
        assert "broken.cedar" in str(rejected["payload"])
        status = client.status().document["policy"]
        assert status["bundle_digest"] == before and "broken.cedar:3:3" in str(status["rejected"])
        assert place.palyra("call", "sleep", "--input", '{"seconds":0}').status == 3, "the forbid is still in force"
        assert place.palyra("call", "echo", "--input", '{"text":"x"}').status == 0
        checked = place.palyra("policy", "check", "--json")
        assert checked.status == 2
        problem = checked.error["details"]["problems"][0]
        assert (problem["line"], problem["column"]) == (3, 3)
        prose = place.palyra("policy", "check")
        assert "broken.cedar" in prose.stderr and "^" in prose.stderr
    # A restart with the file still broken starts with the last good policies.
    with place.daemon() as daemon, daemon.client() as client:
        assert client.status().document["policy"]["bundle_digest"] == before
        assert place.palyra("call", "sleep", "--input", '{"seconds":0}').status == 3
        (place.policies / "broken.cedar").unlink()
        eventually_sync(lambda: client.status().document["policy"]["rejected"] is None)


@pytest.mark.promise("P-policy-reload")
def test_a_check_tells_whether_the_daemon_has_taken_the_policies_up(place: Place, tmp_path: Path) -> None:
    assert place.palyra("policy", "check", "--json").data["in_force"] is None, "no daemon runs"
    with place.daemon():
        (place.policies / "sleep.cedar").write_text(FORBID_SLEEP)
        checked = place.palyra("policy", "check")
        assert "; in force" in checked.stdout, checked.stdout
        # A folder that is only proposed is not asked about, and other settings are other policies.
        assert place.palyra("policy", "check", str(place.policies), "--json").data["in_force"] is None
        place.config.write_text('[tools]\nallowed = ["echo"]\n')
        other = place.palyra("policy", "check")
        assert other.status == 0 and "not in force" in other.stdout


@pytest.mark.promise("P-approval-ends")
def test_no_yes_is_promised_that_the_changed_policies_do_not_keep(place: Place) -> None:
    write = ("call", "fs.write", "--input", '{"path": "a.txt", "content": "x"}')
    with place.daemon():
        approval = place.palyra(*write, "--json").error["details"]["approval_id"]
        (place.policies / "sleep.cedar").write_text(FORBID_SLEEP)
        assert "; in force" in place.palyra("policy", "check").stdout
        refused = place.palyra("approvals", "approve", approval, "--yes")
        assert refused.status == 2 and "approval.outdated" in refused.stderr and "made again" in refused.stderr
        assert "may make exactly this" not in refused.stdout + refused.stderr
        assert "if approved  nothing now" in place.palyra("approvals", "show", approval).stdout
        anew = place.palyra(*write, "--json").error["details"]["approval_id"]
        assert "may make exactly this" in place.palyra("approvals", "approve", anew, "--yes").stdout
        assert place.palyra(*write).status == 0


@pytest.mark.promise("P-policy-reload")
def test_a_first_start_with_broken_policies_is_refused(place: Place) -> None:
    (place.policies / "broken.cedar").write_text(BROKEN)
    refused = place.palyra("up", "--port", "0", "--json")
    assert refused.status == 2 and refused.error["code"] == "policy.bundle_invalid"


@pytest.mark.promise("P-policy-same")
def test_replay_lists_exactly_the_calls_whose_verdict_changes(place: Place, tmp_path: Path) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        for text in ("a", "b", "c"):
            client.call("echo", {"text": text}, principal="agent:one")
        changed = [
            client.call("sleep", {"seconds": 0}, principal="agent:one").call_id,
            client.call("echo", {"text": "d"}, principal="agent:two").call_id,
        ]
        place.palyra("call", "fs.write", "--input", '{"path":"a","content":"x"}')
    stricter = tmp_path / "stricter"
    stricter.mkdir()
    (stricter / "s.cedar").write_text(
        FORBID_SLEEP
        + '@id("no-two")\nforbid (principal == Agent::"two", action == Action::"tool.execute", resource);\n'
    )
    replayed = place.palyra("policy", "replay", "--against", str(stricter), "--json")
    assert replayed.status == 0
    changes = replayed.data["findings"]
    assert [change["call_id"] for change in changes] == changed
    same = tmp_path / "same"
    same.mkdir()
    assert place.palyra("policy", "replay", "--against", str(same), "--json").data["findings"] == []


def test_explain_tells_the_policy_and_the_smallest_grant(place: Place) -> None:
    allowed = place.palyra("policy", "explain", "--principal", "agent:x", "--tool", "echo", "--json")
    assert allowed.data["outcome"] == "allow"
    denied = Place(place.root / "strict", '[tools]\nallowed = ["sleep"]\n').palyra(
        "policy", "explain", "--principal", "agent:x", "--tool", "echo", "--json"
    )
    assert denied.data["outcome"] == "deny"
    assert denied.data["missing_grant"]["setting"] == "tools.allowed"
