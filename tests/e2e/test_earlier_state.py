"""A state directory of an earlier version opens unchanged: its record, approvals, secrets, tokens and skills.

scripts/make_state_vector.py made each vector with the code of the commit in its name.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Place
from palyra.errors import PalyraError

VECTORS = sorted((Path(__file__).parents[1] / "vectors").glob("state-*.tar.gz"))


@pytest.fixture(params=VECTORS, ids=lambda path: path.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    with tarfile.open(request.param) as vector:
        for entry in vector:
            path = tmp_path / entry.name
            if entry.isdir():
                path.mkdir()
            else:
                content = vector.extractfile(entry)
                assert content is not None
                path.write_bytes(content.read())
            # A state directory that others can read is refused.
            path.chmod(entry.mode)
    return Place(tmp_path, (tmp_path / "config.toml").read_text())


def expected_of(place: Place) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((place.root / "expected.json").read_text())
    return expected


def test_there_is_a_state_of_an_earlier_version() -> None:
    assert VECTORS


def test_everything_kept_is_found(place: Place) -> None:
    expected = expected_of(place)
    verified = place.palyra("journal", "verify", "--json").data
    assert verified["last_seq"] == expected["last_seq"]
    approvals = place.palyra("approvals", "list", "--state", "all", "--json").data["approvals"]
    assert {one["id"]: one["state"] for one in approvals} == expected["approvals"]
    secrets = place.palyra("vault", "list", "--json").data["secrets"]
    assert [(one["ref"], one["version"]) for one in secrets] == [("global/example", 2)]
    skills = place.palyra("skill", "list", "--json").data["skills"]
    assert [(one["skill_id"], one["active_version"]) for one in skills] == [("acme.notes", "1.0.0")]
    document = place.root / "document.json"
    document.write_text(json.dumps(expected["document"]))
    assert place.palyra("attest", "verify", str(document), "--json").status == 0
    replayed = place.palyra("policy", "replay", "--against", str(place.policies), "--json")
    assert (replayed.data["changed"], replayed.data["not_replayable"]) == (0, 0), replayed.stdout


def test_work_goes_on_where_the_earlier_version_left_it(place: Place) -> None:
    expected = expected_of(place)
    with place.daemon() as daemon:
        with daemon.client() as owner:
            assert {call: owner.call_status(call).status for call in expected["calls"]} == expected["calls"]
            revealed = {n: owner.reveal_secret("global/example", confirm="global/example", version=n) for n in (1, 2)}
            assert {n: value.reveal() for n, value in revealed.items()} == {1: "first value", 2: "second value"}
            pending = [one.id for one in owner.approvals()]
            assert pending == [name for name, state in expected["approvals"].items() if state == "pending"]
        with daemon.client(expected["token"]) as bot:
            assert bot.call("echo", {"text": "still here"}).result == {"text": "still here"}
            with pytest.raises(PalyraError, match=r"policy denies fs\.list"):
                bot.call("fs.list", {})
        with daemon.client(expected["revoked"]) as gone, pytest.raises(PalyraError, match="token"):
            gone.call("echo", {"text": "x"})
        echoed = place.palyra("call", "echo", "--input", '{"text":"hello"}', "--json")
        assert echoed.data["result"] == {"text": "hello"}
        ran = place.palyra("call", "skill.acme.notes.add", "--input", '{"note":1}', "--json")
        assert ran.data["result"] == {"note": 1}
    verified = place.palyra("journal", "verify", "--json")
    assert verified.status == 0 and verified.data["last_seq"] > expected["last_seq"]
