"""The protocol's own conformance checks, as their authors publish them, against a real daemon.

They ask for tools, prompts and resources by names of their own. A server behind Palyra offers those, so that what is
checked is the way a call takes through Palyra: the door, the pipeline, the sandbox and back. What is expected to fail
is in the list below, each with its reason; the checks fail when one of these passes, too.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fakes import conformance_mcp_server
from fakes.daemon import Place
from fakes.token_proxy import with_token

PACKAGES = Path(sys.prefix) / "npm" / "node_modules"
CHECKS = PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
# What it needs of a newer Node for another of its commands.
NEWER = "globSync as o,"


class Expected(msgspec.Struct, frozen=True):
    """Why a check cannot pass, and what it then says: it fails for this reason and for no other."""

    reason: str
    says: str


ASKS = Expected(
    "a server behind Palyra is asked and never asks: it gets no model and puts no questions of its own to people",
    "Server did not request",
)
NO_SUBSCRIPTIONS = Expected(
    "Palyra declares that resources cannot be subscribed to, and the check does not look", "-32601: Method not found"
)
ONE_STREAM = Expected(
    "a recommendation only: streams that are cut and taken up again. Palyra answers a call in the stream that asked",
    "Server did not send",
)
EXPECTED_FAILURES = {
    "tools-call-sampling": ASKS,
    "elicitation-sep1034-defaults": ASKS,
    "elicitation-sep1330-enums": ASKS,
    "resources-subscribe": NO_SUBSCRIPTIONS,
    "resources-unsubscribe": NO_SUBSCRIPTIONS,
    "server-sse-polling": ONE_STREAM,
}


@pytest.mark.promise("P-mcp-client")
@pytest.mark.timeout(300)
def test_the_protocols_own_conformance_checks_pass(tmp_path: Path) -> None:
    home = tmp_path / "server"
    home.mkdir()
    shutil.copy(conformance_mcp_server.__file__, home / "server.py")
    place = Place(tmp_path / "place", settings(home))
    with place.daemon() as daemon:
        for server in ("test", "json"):
            for words in (("look", server), ("approve", server)):
                answer = place.palyra("mcp", *words, "--json")
                assert answer.status == 0, answer.stdout
        with daemon.client() as owner:
            token = owner.create_token("agent:conformance").token.reveal()
        with with_token(daemon.url, token) as port:
            done = subprocess.run(
                [
                    *("node", runnable(), "server", "--url", f"http://127.0.0.1:{port}/mcp", "--suite", "all"),
                    *("--expected-failures", str(baseline(tmp_path)), "--output-dir", str(tmp_path / "results")),
                ],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                timeout=240,
                check=False,
                env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for name, expected in EXPECTED_FAILURES.items():
        found = failures(tmp_path / "results", name)
        assert found and all(expected.says in each for each in found), (name, found)


def failures(results: Path, scenario: str) -> list[str]:
    [folder] = [each for each in results.iterdir() if re.fullmatch(rf"server-{scenario}-\d{{4}}-.*", each.name)]
    checks = json.loads((folder / "checks.json").read_text())
    return [check.get("errorMessage", "") for check in checks if check["status"] in ("FAILURE", "WARNING")]


def settings(home: Path) -> str:
    requested = [f"test.{name}" for name in conformance_mcp_server.NAMES["test"] if name != "elicitation"]
    servers = "\n".join(
        f"""
[mcp.servers.{name}]
command = "/usr/bin/python3"
args = ["server.py", "{name}"]
workspace = {json.dumps(str(home))}
read_only = true
allow_interpreters = true
offers = {json.dumps(["tools"] if name == "json" else ["tools", "prompts", "resources"])}
"""
        for name in ("test", "json")
    )
    return f"""
[tools]
allowed = ["test.*", "json.*"]
preapproved = {json.dumps([*requested, "json.*", "test.prompt.*", "test.resource.*"])}
[mcp]
# The check of elicitation is a call that needs approval: the question is put to the client.
deciders = {{ "agent:conformance" = "user:operator" }}
{servers}
"""


def baseline(folder: Path) -> Path:
    path = folder / "expected.yml"
    path.write_text("server:\n" + "".join(f"  - {name}\n" for name in EXPECTED_FAILURES))
    return path


def runnable() -> str:
    """The checks for the Node that the distribution has."""
    path = CHECKS.with_name("checks.js")
    text = CHECKS.read_text()
    assert text.count(NEWER) == 1
    first, _, rest = text.replace(NEWER, "").partition("\n")
    path.write_text(f"{first}\nconst o = () => [];\n{rest}")
    return str(path)
