"""The pipeline put together on one state directory."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.gateway_harness import open_harness
from palyra.client.client import Client
from palyra.config.state_dir import StateDir
from palyra.daemon.embedded import embedded_app
from palyra.daemon.pipeline_wiring import WorkspaceHoldsPalyra, directory_of, tool_call_config
from palyra.daemon.settings import Settings
from palyra.pipeline.domain.call import CallState
from palyra.workspace.errors import BadRoot

WRITE = {"path": "a.txt", "content": "hello"}


async def test_start_and_stop_are_on_record_and_nothing_is_left(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        started = harness.events(kind="daemon.started")[0][1]
        assert started == {"bundle_digest": harness.gateway.policy.bundle_digest, "abandoned_calls": 0}
        assert len(list((tmp_path / "state" / "instances").iterdir())) == 1
    assert list((tmp_path / "state" / "instances").iterdir()) == []
    async with open_harness(tmp_path) as harness:
        assert harness.kinds()[-2:] == ["daemon.stopped", "daemon.started"]


@pytest.mark.promise("P-state-private")
async def test_every_file_of_the_state_directory_is_private_but_the_public_key(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await harness.call("echo", {"text": "x"})
        for path in (tmp_path / "state").rglob("*"):
            mode = path.stat().st_mode & 0o777
            expected = 0o700 if path.is_dir() else 0o644 if path.name == "signing.pub" else 0o600
            assert mode == expected, path.name


async def test_a_body_that_fails_still_closes_everything_and_comes_out_bare(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_harness(tmp_path):
            raise KeyError("mine")
    async with open_harness(tmp_path) as harness:
        assert (await harness.call("echo", {"text": "x"})).state is CallState.SUCCEEDED


def test_settings_become_the_boundaries_of_calls(tmp_path: Path) -> None:
    (tmp_path / "deep" / "work").mkdir(parents=True)
    settings = msgspec.convert(
        {
            "tools": {"timeout_ms": 7, "max_timeout_ms": 8, "max_output_bytes": 2048, "max_concurrent_calls": 3},
            "budget": {"calls": 4},
            "approvals": {"ttl_seconds": 5, "max_ttl_seconds": 6},
            "workspace": {"root": str(tmp_path / "deep" / "work")},
        },
        Settings,
    )
    config = tool_call_config(
        settings, StateDir.open(tmp_path / "state"), tmp_path / "policies", directory_of(settings)
    )
    assert (config.timeout_ms, config.max_timeout_ms, config.max_output_bytes) == (7, 8, 2048)
    assert (config.max_concurrent_calls, config.max_calls_per_run) == (3, 4)
    assert (config.approval_ttl_ms, config.max_approval_ttl_ms) == (5_000, 6_000)
    assert config.workspaces.default == str(tmp_path / "deep" / "work")


def test_the_embedded_door_is_called_cli_and_uses_the_same_record(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    with (
        embedded_app(Settings(), state, tmp_path / "policies") as (app, token),
        Client.in_process(app, token=token) as client,
    ):
        made = client.call("echo", {"text": "x"}, principal="agent:bot")
        events = list(client.events(made.call_id))
        assert events[0].data["channel"] == "cli"
        assert client.status().document["journal"]["head"] >= len(events)


def workspace_at(tmp_path: Path, root: str) -> str:
    """With settings, key and policies in one folder, state in another."""
    settings = msgspec.convert(
        {"workspace": {"root": str(tmp_path / root)}, "vault": {"key_file": str(tmp_path / "config" / "vault.key")}},
        Settings,
    )
    state = StateDir.open(tmp_path / "home" / "state")
    return tool_call_config(
        settings, state, tmp_path / "config" / "policies", directory_of(settings)
    ).workspaces.default


@pytest.mark.promise("P-files-inside")
@pytest.mark.parametrize(
    "root", [".", "home", "home/state", "home/state/other", "config", "config/policies", "config/policies/a", "linked"]
)
def test_a_workspace_does_not_hold_what_palyra_goes_by(tmp_path: Path, root: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "home")
    with pytest.raises(WorkspaceHoldsPalyra) as caught:
        workspace_at(tmp_path, root)
    assert caught.value.code == "workspace.holds_palyra"
    assert not (tmp_path / "home" / "state" / "other").exists(), "nothing is made of what is refused"


def workspace_with_everything_apart(tmp_path: Path, root: str, **others: Any) -> str:
    """State, policies, key, passphrase and settings file each in a folder of its own."""
    StateDir.open(tmp_path / "state")
    vault = {"key_file": str(tmp_path / "key" / "k"), "passphrase_file": str(tmp_path / "phrase" / "p")}
    settings = msgspec.convert({"workspace": {"root": str(tmp_path / root)}, "vault": vault, **others}, Settings)
    policies, file = tmp_path / "policies", tmp_path / "settings" / "palyra.toml"
    state = StateDir.open(tmp_path / "state")
    return tool_call_config(settings, state, policies, directory_of(settings), file).workspaces.default


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("root", ["settings", "key", "phrase", "policies"])
def test_a_workspace_does_not_hold_the_settings_file_or_a_key_wherever_they_are(
    tmp_path: Path, root: str, written: bool
) -> None:
    for name in ("settings/palyra.toml", "key/k", "phrase/p"):
        (tmp_path / name).parent.mkdir()
        if written:
            (tmp_path / name).touch()
    with pytest.raises(WorkspaceHoldsPalyra):
        workspace_with_everything_apart(tmp_path, root)


@pytest.mark.promise("P-files-inside")
@pytest.mark.parametrize("through", ["directly", "over a link"])
@pytest.mark.parametrize(
    "named",
    [
        lambda file: {"egress": {"ca_file": file}},
        lambda file: {"browser": {"engine": file}},
        lambda file: {"skills": {"builder_enabled": True, "builder_command": [file]}},
        lambda file: {"skills": {"builder_enabled": True, "builder_command": ["sh", file]}},
    ],
)
def test_a_workspace_does_not_hold_what_palyra_runs_or_trusts(tmp_path: Path, named: Any, through: str) -> None:
    """Who works there could have Palyra run a program of theirs, outside of every sandbox."""
    (tmp_path / "project").mkdir()
    (tmp_path / "safe").mkdir()
    file = tmp_path / "project" / "file"
    if through == "over a link":
        (tmp_path / "safe" / "file").touch(0o700)
        file.symlink_to(tmp_path / "safe" / "file")
    else:
        file.touch(0o700)
    with pytest.raises(WorkspaceHoldsPalyra):
        workspace_with_everything_apart(tmp_path, "project", **named(str(file)))
    assert workspace_with_everything_apart(tmp_path, "safe", **named(str(file))) if through == "directly" else True


def test_a_workspace_does_not_hold_a_program_that_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "generate").touch(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'project'}:/usr/bin")
    skills = {"builder_enabled": True, "builder_command": ["generate"]}
    with pytest.raises(WorkspaceHoldsPalyra):
        workspace_with_everything_apart(tmp_path, "project", skills=skills)
    # It is not run, or works on the project.
    skills = {"builder_enabled": False, "builder_command": ["generate"]}
    assert workspace_with_everything_apart(tmp_path, "project", skills=skills)
    skills = {"builder_enabled": True, "builder_command": ["true", str(tmp_path / "project")]}
    assert workspace_with_everything_apart(tmp_path, "project", skills=skills)


def test_a_workspace_in_the_folder_of_the_settings_file_is_fine(tmp_path: Path) -> None:
    (tmp_path / "settings" / "project").mkdir(parents=True)
    assert workspace_with_everything_apart(tmp_path, "settings/project") == str(tmp_path / "settings" / "project")


@pytest.mark.promise("P-files-inside")
@pytest.mark.parametrize("name", ["settings", "policies", "key"])
@pytest.mark.parametrize("through", ["directly", "over another link"])
def test_a_workspace_does_not_hold_a_link_to_what_palyra_goes_by(tmp_path: Path, name: str, through: str) -> None:
    """Who works there could put another folder in the link's place."""
    (tmp_path / "project").mkdir()
    (tmp_path / "safe").mkdir()
    if through == "directly":
        (tmp_path / "project" / name).symlink_to("../safe")
        (tmp_path / name).symlink_to(tmp_path / "project" / name)
    else:
        (tmp_path / name).symlink_to("project/first")
        (tmp_path / "project" / "first").symlink_to(tmp_path / "project" / ".." / "project" / "second")
        (tmp_path / "project" / "second").symlink_to(tmp_path / "safe")
    with pytest.raises(WorkspaceHoldsPalyra):
        workspace_with_everything_apart(tmp_path, "project")
    (tmp_path / "other").mkdir()
    assert workspace_with_everything_apart(tmp_path, "other")


@pytest.mark.parametrize("root", ["project", "home/project", "config/project", "home/state/workspace/deeper"])
def test_a_workspace_beside_it_is_fine(tmp_path: Path, root: str) -> None:
    StateDir.open(tmp_path / "home" / "state")
    (tmp_path / root).mkdir(parents=True)
    assert workspace_at(tmp_path, root) == str((tmp_path / root).resolve())


@pytest.mark.promise("P-files-inside")
@pytest.mark.parametrize("root", ["typo", "home/state/workspace/typo", "a-file", "circle"])
def test_a_workspace_that_somebody_named_is_not_made(tmp_path: Path, root: str) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(BadRoot) as caught:
        workspace_at(tmp_path, root)
    assert caught.value.code == "workspace.bad_root" and str(tmp_path / root) in caught.value.message
    assert not (tmp_path / root).is_dir()


def test_the_one_in_the_state_directory_is_made_also_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    assert Path(workspace_at(tmp_path, "home/state/workspace")).is_dir()
