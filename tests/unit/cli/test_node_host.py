"""``palyra node run|status|leave`` where there is nothing to connect to."""

from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    return command_line_in(tmp_path)


def test_a_device_that_is_not_paired_says_so(palyra: CommandLine) -> None:
    assert palyra("node", "status", "--json").document["data"] == {"paired": False, "running": False}
    assert "not paired" in palyra("node", "status").out
    for verb in ("run", "leave"):
        ended = palyra("node", verb, "--json")
        assert ended.status == 6 and ended.document["error"]["code"] == "nodes.not_paired"
    assert palyra("node", "leave", "--forget", "--json").document["data"] == {"left": True, "told_daemon": False}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--code", "12"), "pairing.malformed_code"),
        (("--code", "987-6543-2109"), "pairing.no_address"),
        (("--code", "987-6543-2109", "--server", "nowhere"), "pairing.malformed_address"),
        (("--code", "987-6543-2109", "--server", "127.0.0.1:1"), "pairing.daemon_not_reached"),
    ],
)
def test_codes_and_addresses_that_lead_nowhere(palyra: CommandLine, words: tuple[str, ...], code: str) -> None:
    ended = palyra("node", "run", *words, "--json")
    assert ended.status != 0 and ended.document["error"]["code"] == code
    assert "6543" not in ended.out + ended.err, "a code is not repeated"


def test_a_damaged_file_is_said_and_can_be_forgotten(palyra: CommandLine) -> None:
    folder = palyra.state_dir / "node"
    palyra("node", "status")
    (folder / "node-device.v1.json").write_text("{")
    assert palyra("node", "status", "--json").document["error"]["code"] == "nodes.device_file_bad"
    assert palyra("node", "leave", "--forget").status == 0
    assert palyra("node", "status", "--json").document["data"]["paired"] is False
