import json
from typing import Any

import pytest

from fakes.skill_harness import entries
from palyra.skills.package.artifact import SkillArtifact, pack_artifact
from palyra.skills.package.supply_chain import Ingredient, SbomMismatch, make_sbom, require_sbom


def with_sbom(document: Any) -> SkillArtifact:
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return pack_artifact({**entries(), "sbom.cdx.json": raw})


def good() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(entries()["sbom.cdx.json"])
    return document


def test_what_is_made_is_accepted_and_deterministic() -> None:
    require_sbom(pack_artifact(entries()))
    digests = {"b.wasm": "b" * 64, "a.wasm": "a" * 64}
    some = [Ingredient(name="z"), Ingredient(name="a", version="1", purl="pkg:x/a@1")]
    assert make_sbom("s", "1.0.0", digests, some) == make_sbom(
        "s", "1.0.0", dict(reversed(digests.items())), some[::-1]
    )


def test_another_programs_sbom_with_more_in_it_is_accepted() -> None:
    document = {**good(), "specVersion": "1.5", "serialNumber": "urn:uuid:x", "version": 1.0}
    document["components"].append({"type": "library", "name": "zlib", "hashes": []})
    require_sbom(with_sbom(document))


def test_every_mismatch_is_refused() -> None:
    def changed(change: Any) -> dict[str, Any]:
        document = good()
        change(document)
        return document

    module = good()["components"][0]
    for document in (
        b"not json",
        b'{"a": 1, "a": 2}',
        {},
        changed(lambda d: d.update(bomFormat="SPDX")),
        changed(lambda d: d.update(specVersion="9.9")),
        changed(lambda d: d.update(components=[])),
        changed(lambda d: d["components"].append(module)),
        changed(lambda d: d["components"].append({**module, "name": "modules/ghost.wasm"})),
        changed(lambda d: d["components"].append({"type": "library"})),
        changed(lambda d: d["components"][0].update(hashes=[])),
        changed(lambda d: d["components"][0].update(hashes=module["hashes"] * 2)),
        changed(lambda d: d["components"][0].update(hashes=[{"alg": "SHA-256", "content": "0" * 64}])),
        changed(lambda d: d["metadata"]["component"].update(version="9.9.9")),
        changed(lambda d: d["metadata"]["component"].update(name="other")),
    ):
        with pytest.raises(SbomMismatch):
            require_sbom(with_sbom(document))
