"""The policies in force change whole, on record, or not at all."""

from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.gateway_harness import GatewayHarness, open_harness
from palyra.errors import PalyraError
from palyra.pipeline.domain.call import CallState
from palyra.policy.live_policy import LAST_GOOD, Rejected, Swapped, Unchanged

NO_ECHO = '@id("no-echo")\nforbid (principal, action == Action::"tool.execute", resource == Tool::"echo");\n'
BROKEN = '@id("broken")\nforbid (principal, action == Action::"tool.execute"\n  resource);\n'


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    folder.mkdir()
    return folder


async def echo(harness: GatewayHarness) -> CallState:
    return (await harness.call("echo", {"text": "x"})).state


@pytest.mark.promise("P-policy-reload")
async def test_a_good_edit_is_swapped_in_and_recorded(tmp_path: Path, policies: Path) -> None:
    async with open_harness(tmp_path) as harness:
        policy = harness.gateway.policy
        before = policy.bundle_digest
        assert isinstance(await policy.reload(), Unchanged)
        (policies / "a.cedar").write_text(NO_ECHO)
        # The watcher may have been faster: then there is nothing left to swap.
        assert isinstance(await policy.reload(), (Swapped, Unchanged))
        assert policy.bundle_digest != before and await echo(harness) is CallState.DENIED
        swapped = await eventually(lambda: harness.events(kind="policy.swapped"))
        assert len(swapped) == 1
        assert (swapped[0][1]["old"], swapped[0][1]["new"]) == (before, policy.bundle_digest)


@pytest.mark.promise("P-policy-reload")
async def test_a_bad_edit_changes_nothing_and_is_recorded_with_its_place(tmp_path: Path, policies: Path) -> None:
    (policies / "a.cedar").write_text(NO_ECHO)
    async with open_harness(tmp_path) as harness:
        policy = harness.gateway.policy
        before = policy.bundle_digest
        (policies / "b.cedar").write_text(BROKEN)
        outcome = await policy.reload()
        assert isinstance(outcome, Rejected)
        assert policy.bundle_digest == before and await echo(harness) is CallState.DENIED
        assert "b.cedar:3:3" in str(policy.status()["rejected"])
        payload = harness.events(kind="policy.rejected")[0][1]
        assert payload["digest"] == before and payload["code"] == "policy.bundle_invalid"
        assert payload["problems"][0]["line"] == 3
        (policies / "b.cedar").unlink()
        await policy.reload()
        assert policy.status()["rejected"] is None


@pytest.mark.promise("P-policy-reload")
async def test_a_restart_after_a_bad_edit_keeps_the_last_good_policies(tmp_path: Path, policies: Path) -> None:
    (policies / "a.cedar").write_text(NO_ECHO)
    async with open_harness(tmp_path) as harness:
        digest = harness.gateway.policy.bundle_digest
    (policies / "a.cedar").write_text(BROKEN)
    async with open_harness(tmp_path) as harness:
        assert harness.gateway.policy.bundle_digest == digest and await echo(harness) is CallState.DENIED
        assert harness.kinds(kind="policy.rejected") == ["policy.rejected"]
        assert harness.gateway.policy.status()["rejected"] is not None


async def test_without_a_last_good_bundle_a_bad_one_is_no_start(tmp_path: Path, policies: Path) -> None:
    (policies / "a.cedar").write_text(BROKEN)
    with pytest.raises(PalyraError) as caught:
        async with open_harness(tmp_path):
            pass
    assert caught.value.code == "policy.bundle_invalid"
    assert not (tmp_path / "state" / LAST_GOOD).exists()


async def test_the_kept_copy_is_private_and_of_another_version_is_not_believed(tmp_path: Path, policies: Path) -> None:
    async with open_harness(tmp_path):
        pass
    kept = tmp_path / "state" / LAST_GOOD
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text('{"version": 1, "schema": "", "files": [], "grant": "everything"}')
    (policies / "a.cedar").write_text(BROKEN)
    with pytest.raises(Exception, match="grant"):
        async with open_harness(tmp_path):
            pass
