from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in, use_tiny_api
from fakes.tiny_api import TinyApi


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> TinyApi:
    return use_tiny_api(monkeypatch)


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    return command_line_in(tmp_path)


def test_create_prints_the_token_alone_on_stdout(palyra: CommandLine, api: TinyApi) -> None:
    ended = palyra("token", "create", "--principal", "agent:a", "--scope", "call", "--scope", "operate", "--ttl", "5",
                   "--label", "l", "--run-id", "R")  # fmt: skip
    assert ended.out == "plr_new\n"
    assert "plr_new" not in ended.err
    assert api.seen[-1]["body"] == {
        "principal": "agent:a",
        "scopes": ["call", "operate"],
        "ttl_seconds": 5,
        "label": "l",
        "run_id": "R",
    }


def test_create_in_json_shows_it_once(palyra: CommandLine, api: TinyApi) -> None:
    assert palyra("token", "create", "--principal", "agent:a", "--json").document["data"]["token"] == "plr_new"
    assert api.seen[-1]["body"] == {"principal": "agent:a"}
    assert palyra("token", "create").status == 2


def test_list_and_revoke(palyra: CommandLine, api: TinyApi) -> None:
    assert "agent:a" in palyra("token", "list").out
    assert palyra("token", "list", "--json").document["data"]["tokens"][0]["label"] == "l"
    assert palyra("token", "revoke", "01TK").out == "revoked token 01JCT0000000000000000000TK\n"
    assert (api.seen[-1]["method"], api.seen[-1]["path"]) == ("DELETE", "/v1/tokens/01TK")
