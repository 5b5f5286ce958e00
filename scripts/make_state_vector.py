"""Make a small real state directory with the code of this tree and pack it as a test vector.

Run ``python scripts/make_state_vector.py tests/vectors/state-COMMIT.tar.gz`` as root. It works in /srv/palyra, so that
the vector names no path of the machine. ``tests/e2e/test_earlier_state.py`` opens the vector with later code.
"""

import gzip
import io
import json
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fakes.daemon import Place
from fakes.skill_harness import PUBLISHER, SKILL, archive
from palyra.signing.ed25519 import Ed25519Signer

HOME = Path("/srv/palyra")
SETTINGS = """[access]
operators = ["user:operator"]
[approvals]
ttl_seconds = 3000000000
max_ttl_seconds = 3000000000
[journal]
checkpoint_events = 8
"""
REVEAL = '@id("see") permit(principal in Group::"operators", action == Action::"vault.reveal", resource);\n'
FORBID = '@id("no-lists") forbid(principal, action == Action::"tool.execute", resource == Tool::"fs.list");\n'
# Gone with the process, or made again from nothing.
PASSING = {
    *("instances", "sandbox", "scratch", "compiled", "cache", "sockets"),
    *("daemon.json", "daemon.lock", "palyra.ballast", "palyra.db-shm"),
}


def fill(place: Place) -> dict[str, Any]:
    """Do a little of everything that leaves something behind, and return what a later version should find."""

    def palyra(*words: str, status: int = 0, stdin: str = "") -> Any:
        answer = place.palyra(*words, "--json", stdin=stdin)
        assert answer.status == status, (words, answer.stdout, answer.stderr)
        return answer.document.get("data") or answer.error

    def write(name: str) -> str:
        given = json.dumps({"path": name, "content": "hello"})
        approval: str = palyra("call", "fs.write", "--input", given, status=4)["details"]["approval_id"]
        return approval

    (place.policies / "own.cedar").write_text(REVEAL + FORBID)
    signer = Ed25519Signer.load_or_create(HOME / "acme.key")
    (HOME / "notes.skill").write_bytes(archive(signer=signer))
    palyra("skill", "trust", "add", PUBLISHER, str(HOME / "acme.pub"))
    digest = palyra("skill", "install", str(HOME / "notes.skill"))["digest"]
    palyra("skill", "approve", SKILL, "1.0.0", "--digest", digest)
    for value in ("first value", "second value"):
        palyra("vault", "put", "global/example", stdin=value)
    token = palyra("token", "create", "--principal", "agent:bot")["token"]
    revoked = palyra("token", "create", "--principal", "agent:gone")
    palyra("token", "revoke", revoked["token_id"])
    with place.daemon():
        document = palyra("call", "echo", "--input", '{"text":"hello"}')
        palyra("call", "fs.list", "--input", "{}", status=3)
        used, denied = write("used.txt"), write("denied.txt")
        palyra("approvals", "approve", used, "--yes")
        palyra("call", "fs.write", "--input", '{"path":"used.txt","content":"hello"}')
        palyra("approvals", "deny", denied)
        command = json.dumps({"command": "echo", "args": ["hello"]})
        approval = palyra("call", "process.run", "--input", command, status=4)["details"]["approval_id"]
        palyra("approvals", "approve", approval, "--yes")
        ran = palyra("call", "process.run", "--input", command)
        pending = write("pending.txt")
    return {
        "calls": {document["call_id"]: "succeeded", ran["call_id"]: "succeeded"},
        "document": document,
        "approvals": {used: "consumed", approval: "consumed", denied: "denied", pending: "pending"},
        "skill": digest,
        "token": token,
        "revoked": revoked["token"],
        "last_seq": palyra("journal", "verify")["last_seq"],
    }


def pack(out: Path) -> None:
    """Pack the same files into the same bytes, whoever does it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(HOME.rglob("*")):
            name = path.relative_to(HOME)
            if PASSING & set(name.parts) or not (path.is_file() or path.is_dir()):
                continue
            entry = tarfile.TarInfo(str(name))
            entry.mode = path.stat().st_mode & 0o777
            entry.type, content = (tarfile.DIRTYPE, b"") if path.is_dir() else (tarfile.REGTYPE, path.read_bytes())
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    out.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def main() -> None:
    HOME.mkdir(parents=True)
    try:
        expected = fill(Place(HOME, SETTINGS))
        (HOME / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True))
        pack(Path(sys.argv[1]))
    finally:
        shutil.rmtree(HOME)


if __name__ == "__main__":
    main()
