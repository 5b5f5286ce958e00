"""A skill from its text form to a call, with a real daemon: refused until approved, upgraded, rolled back; and one that
fetches with a secret, keeps a note, and can do nothing beyond."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Place
from fakes.skill_harness import PUBLISHER, SKILL, archive
from fakes.wasm_guests import imported, text_at
from fakes.wasm_skills import TOOL, status_module, text_module
from fakes.web_server import QuietHandler, web_server
from palyra.signing.ed25519 import Ed25519Signer
from palyra.wasm.domain.host_interface import Status

TOKEN = "tok-0123456789"


class Handler(QuietHandler):
    heard: list[str]

    def do_GET(self) -> None:
        self.heard.append(f"{self.path} {self.headers.get('Authorization')}")
        self.answer(f"you sent {self.headers.get('Authorization')}".encode())


@contextmanager
def web() -> Iterator[tuple[int, list[str]]]:
    heard: list[str] = []
    with web_server(type("Hearing", (Handler,), {"heard": heard})) as port:
        yield port, heard


class Workshop:
    """Builds, signs, installs and approves through the command line."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.signer = Ed25519Signer.load_or_create(place.root / "acme.key")

    def palyra(self, *words: str, stdin: str = "") -> Any:
        answer = self.place.palyra(*words, "--json", stdin=stdin)
        assert answer.status == 0, answer.stdout
        return answer.data

    def trust(self) -> None:
        self.palyra("skill", "trust", "add", PUBLISHER, str(self.place.root / "acme.pub"))

    def install(self, version: str, module: bytes, **options: str) -> str:
        path = self.place.root / f"{version}.skill"
        path.write_bytes(archive(version, signer=self.signer, modules={"main.wasm": module}, **options))
        return str(self.palyra("skill", "install", str(path))["digest"])

    def approve(self, version: str, digest: str) -> None:
        self.palyra("skill", "approve", SKILL, version, "--digest", digest)

    def put_in_use(self, version: str, module: bytes, **options: str) -> None:
        self.approve(version, self.install(version, module, **options))

    def call(self, tool: str = TOOL, arguments: str = "{}") -> Any:
        return self.place.palyra("call", tool, "--input", arguments, "--json")


def test_from_quarantine_to_rollback(tmp_path: Path) -> None:
    place = Place(tmp_path)
    workshop = Workshop(place)
    with place.daemon() as daemon:
        workshop.trust()
        digest = workshop.install("1.0.0", status_module("(i32.const 1)"))
        refused = workshop.call()
        assert refused.status == 3 and refused.error["code"] == "tool.unknown", refused.stdout
        workshop.approve("1.0.0", digest)
        assert workshop.call().data["result"] == {"s": "+0001"}
        listed = {tool["name"]: tool for tool in workshop.palyra("tools", "list")["tools"]}
        assert listed[TOOL]["tier"] == "a" and not listed[TOOL]["sensitive"]
        newer = workshop.install("1.1.0", status_module("(i32.const 2)"))
        assert workshop.call().data["result"] == {"s": "+0001"}
        workshop.approve("1.1.0", newer)
        assert workshop.call().data["result"] == {"s": "+0002"}
        workshop.palyra("skill", "rollback", SKILL)
        assert workshop.call().data["result"] == {"s": "+0001"}
        workshop.palyra("skill", "disable", SKILL)
        assert workshop.call().error["code"] == "tool.unknown"
        workshop.palyra("skill", "enable", SKILL)
        with urllib.request.urlopen(f"{daemon.url}/metrics") as answer:
            metrics = answer.read().decode()
        assert f'tool="{TOOL}"' in metrics
    # Without a daemon, too.
    assert workshop.call().data["result"] == {"s": "+0001"}
    entries = workshop.palyra("journal", "tail", "-n", "200")
    kinds = [entry["kind"] for entry in entries["events"]]
    assert [kind for kind in kinds if kind.startswith("skill.")] == [
        *("skill.publisher_added", "skill.ingested", "skill.audited", "skill.quarantined", "skill.approved"),
        *("skill.ingested", "skill.audited", "skill.quarantined", "skill.superseded", "skill.approved"),
        *("skill.superseded", "skill.rolled_back", "skill.disabled", "skill.enabled"),
    ]
    assert place.palyra("journal", "verify", "--json").status == 0


HEAD = json.dumps({"method": "GET", "path": "/me", "headers": []})
IMPORTS = "".join(
    imported(name, count)
    for name, count in (
        *(("http-send", 5), ("secret-attach", 6), ("secret-reveal", 1), ("storage-put", 5), ("storage-get", 3)),
        ("channel-send", 3),
    )
)
DATA = (
    text_at(8, HEAD)
    + text_at(512, "Authorization")
    + text_at(544, "Bearer ")
    + text_at(600, "../x")
    + text_at(608, "k")
)
SEND = f"(call $http-send (i32.const {{}}) (i32.const 8) (i32.const {len(HEAD)}) (i32.const 0) (i32.const 0))"
# Attaches, sends, keeps the last of the answer under a key, says so on a channel, and returns what it kept.
LENGTH = len("you sent Bearer ") + len(TOKEN)
GOOD = f"""(block (result i32)
  (drop (call $secret-attach (i32.const 20000) (i32.const 10000) (i32.const 512) (i32.const 13) (i32.const 544)
    (i32.const 7)))
  (local.set $n {SEND.format(10000)})
  (drop (call $result-read (i32.sub (local.get $n) (i32.const {LENGTH})) (i32.const 1024) (i32.const {LENGTH})))
  (drop (call $storage-put (i32.const 30000) (i32.const 608) (i32.const 1) (i32.const 1024) (i32.const {LENGTH})))
  (drop (call $channel-send (i32.const 40000) (i32.const 1024) (i32.const 8)))
  (call $storage-get (i32.const 30000) (i32.const 608) (i32.const 1)))"""


@pytest.mark.parametrize("approved", [False, True])
def test_a_skill_with_a_secret_can_do_its_work_and_nothing_else(tmp_path: Path, approved: bool) -> None:
    with web() as (port, heard):
        host = f"api.test:{port}"
        place = Place(
            tmp_path,
            f"[tools]\npreapproved = {['echo'] if approved else ['skill.*']}\n".replace("'", '"')
            + f'[egress]\nallowed_hosts = ["{host}", "other.test:{port}"]\n'
            f'private_targets = ["{host}", "other.test:{port}"]\nplain_targets = ["{host}"]\n'
            '[egress.static_hosts]\n"api.test" = ["127.0.0.1"]\n"other.test" = ["127.0.0.1"]\n',
        )
        workshop = Workshop(place)
        capabilities = (
            f'http_egress_allowlist = ["{host}"]\nsecrets = ["token"]\nchannels = ["news"]\n'
            'filesystem = { write_roots = ["notes"] }'
        )

        def refused(version: str, body: str) -> int:
            """What the host answers to a guest that tries."""
            workshop.put_in_use(version, status_module(body, imports=IMPORTS, data=DATA), capabilities=capabilities)
            return int(workshop.call().data["result"]["s"])

        with place.daemon() as daemon:
            workshop.trust()
            workshop.palyra("vault", "put", f"skill:{SKILL}/token", stdin=TOKEN)
            workshop.put_in_use("1.0.0", text_module(GOOD, imports=IMPORTS, data=DATA), capabilities=capabilities)
            if approved:
                asked = workshop.call()
                assert asked.status == 4, asked.stdout
                approval = asked.error["details"]["approval_id"]
                touches = workshop.palyra("approvals", "show", approval)["touches"]
                assert touches["hosts"] == [host] and touches["secrets"] == [f"skill:{SKILL}/token"]
                workshop.palyra("approvals", "approve", approval, "--yes")
                answer = workshop.call()
                assert answer.status == 0 and heard == [f"/me Bearer {TOKEN}"], answer.stdout
                return
            messages = Messages(daemon.url, daemon.token)
            answer = workshop.call()
            assert answer.status == 0, answer.stdout
            assert heard == [f"/me Bearer {TOKEN}"]
            assert answer.data["result"] == {"t": "you sent Bearer " + "*" * len(TOKEN)}
            assert messages.first()["text"] == "you sent"
            # Another host, though the settings allow it: there is no handle for it.
            assert refused("1.1.0", SEND.format(10001)) == Status.BAD_HANDLE
            assert refused("1.2.0", "(call $secret-reveal (i32.const 20000))") == Status.DENIED
            climb = "(call $storage-put (i32.const 30000) (i32.const 600) (i32.const 4) (i32.const 8) (i32.const 4))"
            assert refused("1.3.0", climb) == Status.BAD_REQUEST
            assert len(heard) == 1
            kinds = [entry["kind"] for entry in workshop.palyra("journal", "tail", "-n", "500")["events"]]
            assert {"egress.connected", "vault.secret_used", "egress.credential_used", "channel.message"} <= set(kinds)
        assert place.palyra("journal", "verify", "--json").status == 0
        assert TOKEN not in place.palyra("journal", "tail", "-n", "500", "--json").stdout


class Messages:
    """Follows the channel ``news`` on a thread from before its making ends."""

    def __init__(self, url: str, token: str) -> None:
        self._listening = threading.Event()
        self._found: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._follow, args=(url, token), daemon=True)
        self._thread.start()
        assert self._listening.wait(30)

    def _follow(self, url: str, token: str) -> None:
        request = urllib.request.Request(f"{url}/v1/channels/news/events", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            for line in response:
                self._listening.set()
                if line.startswith(b"data: "):
                    self._found.append(json.loads(line.removeprefix(b"data: ")))
                    return

    def first(self) -> dict[str, Any]:
        self._thread.join(30)
        return self._found[0]
