"""What agents write into a workspace so that the person's next git command, outside, runs their code.

Each attack is done with the real git, first without Palyra: it has to work there, or it would show nothing here.
"""

from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from fakes.git_payloads import PAYLOADS, Payload, ran_outside

pytestmark = pytest.mark.promise("P-files-protected")

each_payload = pytest.mark.parametrize("payload", PAYLOADS, ids=[each.name for each in PAYLOADS])


@each_payload
def test_the_attack_works_where_nobody_stops_it(tmp_path: Path, payload: Payload) -> None:
    root = tmp_path / "workspace"
    payload.prepare(root)
    assert not ran_outside(root / payload.at, tmp_path)
    payload.write(root, tmp_path)
    assert ran_outside(root / payload.at, tmp_path)


@each_payload
async def test_no_file_that_fs_write_makes_runs_with_the_next_git_command(tmp_path: Path, payload: Payload) -> None:
    root = tmp_path / "workspace"
    payload.prepare(root)
    settings = {"workspace": {"root": str(root)}, "tools": {"preapproved": ["fs.*"]}}
    refused = []
    async with open_harness(tmp_path, settings) as harness:
        for path, text in payload.texts(tmp_path).items():
            more = {"executable": True, "create_parents": True}
            mode = "overwrite" if (root / path).exists() else "create"
            record = await harness.call("fs.write", {"path": path, "content": text, "mode": mode, **more})
            refused += [path] if record.state != "succeeded" else []
            if record.state != "succeeded":
                assert record.error is not None
                assert record.error["code"] == "workspace.protected_name"
                assert "open_groups" in record.error["hint"]
    assert refused
    assert not ran_outside(root / payload.at, tmp_path)
