"""The life of a skill against a real daemon process: uploads on a socket, a restart, and a kill."""

from pathlib import Path

from fakes.daemon import Place
from fakes.skill_harness import PUBLISHER, SKILL, archive
from palyra.signing.ed25519 import Ed25519Signer


def test_install_approve_upgrade_and_roll_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    signer = Ed25519Signer.load_or_create(tmp_path / "acme.key")
    old, new = tmp_path / "old.skill", tmp_path / "new.skill"
    old.write_bytes(archive(signer=signer))
    new.write_bytes(archive("1.1.0", signer=signer, assets={"large.bin": b"x" * 5_000_000}))

    def palyra(*words: str) -> object:
        answer = place.palyra("skill", *words, "--json")
        assert answer.status == 0, answer.stdout
        return answer.data

    def install(path: Path) -> str:
        installed = palyra("install", str(path))
        assert isinstance(installed, dict) and installed["state"] == "quarantined"
        return str(installed["digest"])

    def in_use() -> str | None:
        listed = palyra("list")
        assert isinstance(listed, dict)
        version: str | None = listed["skills"][0]["active_version"]
        return version

    with place.daemon():
        palyra("trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
        palyra("approve", SKILL, "1.0.0", "--digest", install(old))
        digest = install(new)
        assert in_use() == "1.0.0"
        palyra("approve", SKILL, "1.1.0", "--digest", digest)
        assert in_use() == "1.1.0"
    # Without a daemon the same commands work on the same state.
    palyra("rollback", SKILL)
    assert in_use() == "1.0.0"
    with place.daemon() as daemon:
        palyra("disable", SKILL)
        assert in_use() is None
        daemon.kill()
    assert in_use() is None
    verified = place.palyra("journal", "verify", "--json")
    assert verified.status == 0, verified.stdout
