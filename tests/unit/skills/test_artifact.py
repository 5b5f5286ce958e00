import pytest

from fakes.skill_harness import entries, manifest, wat
from palyra.skills.limits import MAX_MODULES
from palyra.skills.package.artifact import BadEntry, EntryTooLarge, pack_artifact, read_artifact
from palyra.skills.package.toml_reader import MalformedManifest


@pytest.mark.promise("P-skill-origin")
def test_the_same_entries_give_the_same_bytes_and_digest() -> None:
    parts = entries(assets={"a.txt": b"x", "deep/er/b.txt": b"y"})
    one, other = pack_artifact(parts), pack_artifact(dict(reversed(parts.items())))
    assert one.raw == other.raw and one.digest == other.digest
    again = read_artifact(one.raw)
    assert again.manifest.skill_id == "acme.notes" and set(again.modules) == {"main.wasm"}
    assert set(again.assets) == {"assets/a.txt", "assets/deep/er/b.txt"} and again.signature is None


@pytest.mark.parametrize("missing", ["skill.toml", "sbom.cdx.json", "provenance.json", "modules/main.wasm"])
def test_every_required_part_is_required(missing: str) -> None:
    parts = entries()
    del parts[missing]
    with pytest.raises(BadEntry):
        pack_artifact(parts)


@pytest.mark.parametrize(
    "name",
    ["README", "assets/", "assets", "assets/../x", "assets//x", "/etc/passwd", "../x", "modules/x.so",
     "modules/a/b.wasm",
     "assets/.hidden", "assets/a\\b", "C:/x", "assets/ends.", "assets/spa ce", "assets/\u00e4", "modules/.wasm",
     "assets/" + "a" * 200, "SKILL.toml", "assets/a\0b", "skill.toml/x"],
)  # fmt: skip
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(BadEntry):
        pack_artifact({**entries(), name: b""})


def test_twins_where_case_does_not_count_and_files_that_are_folders_are_refused() -> None:
    with pytest.raises(BadEntry, match="case"):
        pack_artifact({**entries(), "assets/Readme": b"", "assets/README": b""})
    with pytest.raises(BadEntry, match="folder"):
        pack_artifact({**entries(), "assets/a": b"", "assets/A/b": b""})


@pytest.mark.promise("P-limits")
def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.skills.package.artifact.MAX_ENTRY_BYTES", 50)
    with pytest.raises(EntryTooLarge):
        pack_artifact(entries(assets={"big": b"x" * 51}))
    modules = {f"m{number}.wasm": wat("(module)") for number in range(MAX_MODULES)}
    with pytest.raises(BadEntry, match="17 modules"):
        pack_artifact(entries(modules={"main.wasm": wat("(module)"), **modules}))


def test_the_manifest_names_modules_that_are_there() -> None:
    with pytest.raises(BadEntry, match=r"main\.wasm"):
        pack_artifact(entries(modules={"other.wasm": wat("(module)")}))


def test_a_bad_manifest_is_refused_with_its_line() -> None:
    parts = entries()
    parts["skill.toml"] = manifest().replace(b'name = "Notes"', b"name = 1")
    with pytest.raises(MalformedManifest, match="line 3"):
        pack_artifact(parts)
