import json
from typing import Any

import pytest

from fakes.skill_harness import entries
from palyra.skills.package.artifact import SkillArtifact, pack_artifact
from palyra.skills.package.supply_chain import ProvenanceMismatch, require_provenance


def with_provenance(document: Any) -> SkillArtifact:
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return pack_artifact({**entries(), "provenance.json": raw})


def test_what_is_made_names_its_builder() -> None:
    assert require_provenance(pack_artifact(entries())) == "urn:test"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(_type="other"),
        lambda d: d.update(predicateType="https://slsa.dev/provenance/v0.2"),
        lambda d: d.update(subject=[]),
        lambda d: d["subject"].append(d["subject"][0]),
        lambda d: d["subject"].append({"name": "modules/ghost.wasm", "digest": {"sha256": "0" * 64}}),
        lambda d: d["subject"].append({"name": "x", "digest": {"sha256": "0" * 64}}),
        lambda d: d["subject"][0]["digest"].update(sha256="0" * 64),
        lambda d: d["subject"][0].update(digest={"sha1": "0"}),
        lambda d: d["predicate"].pop("runDetails"),
        lambda d: d.pop("predicate"),
    ],
)
def test_every_mismatch_is_refused(change: Any) -> None:
    document = json.loads(entries()["provenance.json"])
    change(document)
    with pytest.raises(ProvenanceMismatch):
        require_provenance(with_provenance(document))


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(ProvenanceMismatch):
        require_provenance(with_provenance(b"{"))
