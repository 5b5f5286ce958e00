import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.command_line import CommandLine, command_line_in
from palyra.signing.ed25519 import Ed25519Signer
from palyra.signing.tool_attestation import ToolAttestation, attest

CALL = ToolAttestation(
    call_id="01CA",
    run_id="01RN",
    principal="agent:a\x1b[2J",
    tool="echo",
    argument_digest="ab",
    decision="allow",
    policies=("base",),
    bundle_digest="cd",
    executor="builtin",
    receipt=({"asked": 1, "layer": "deadline"}, {"asked": "65536 bytes", "layer": "output_quota"}),
    outcome="succeeded",
    output_digest="ef",
    started_ms=0,
    ended_ms=1,
)


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    line = command_line_in(tmp_path)
    line.state_dir.mkdir(mode=0o700)
    signer = Ed25519Signer.load_or_create(line.state_dir / "signing.key")
    (line.state_dir / "signing.key").unlink()
    (tmp_path / "good.json").write_bytes(attest(CALL, [signer]).to_json())
    return line


def test_verifies_with_only_the_public_key_of_the_state_directory(palyra: CommandLine, tmp_path: Path) -> None:
    ended = palyra("attest", "verify", str(tmp_path / "good.json"))
    assert ended.status == 0
    assert "agent:a\\x1b[2J" in ended.out and "\x1b" not in ended.out
    assert 'layer "deadline", asked 1' in ended.out
    assert 'layer "output_quota", asked "65536 bytes" (64 KiB)' in ended.out
    document = palyra("attest", "verify", str(tmp_path / "good.json"), "--json").document
    assert document["data"]["attestation"]["call_id"] == "01CA"
    assert [entry.name for entry in palyra.state_dir.iterdir()] == ["signing.pub"]


def test_standard_input_and_another_key(palyra: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = (tmp_path / "good.json").read_bytes()
    key = tmp_path / "moved.pem"
    (palyra.state_dir / "signing.pub").rename(key)
    for options, status in ((("--public-key", str(key)), 0), ((), 6)):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
        assert palyra("attest", "verify", "-", *options).status == status
    Ed25519Signer.load_or_create(tmp_path / "other.key")
    ended = palyra(
        "attest", "verify", str(tmp_path / "good.json"), "--public-key", str(tmp_path / "other.pub"), "--json"
    )
    assert (ended.status, ended.document["error"]["code"]) == (1, "attestation.unknown_key")


def test_a_changed_attestation_is_refused_with_its_code(palyra: CommandLine, tmp_path: Path) -> None:
    envelope = json.loads((tmp_path / "good.json").read_text())
    envelope["payload"] = "e30="
    (tmp_path / "bad.json").write_text(json.dumps(envelope))
    ended = palyra("attest", "verify", str(tmp_path / "bad.json"), "--json")
    assert (ended.status, ended.document["error"]["code"]) == (1, "attestation.signature")
    assert palyra("attest", "verify", str(tmp_path / "missing.json")).status == 2
