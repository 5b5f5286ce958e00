"""What of a state directory goes into a backup, and which names an archive may have."""

import pytest

from palyra.backup.manifest import BadEntry, Part, check_name, part_of


@pytest.mark.promise("P-backup")
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("palyra.db", Part.STATE),
        ("signing.pub", Part.STATE),
        ("node-runtime.v1.json", Part.STATE),
        ("skills/artifacts/ab.skill", Part.STATE),
        ("signing.key", Part.KEY),
        ("operator.token", Part.KEY),
        ("wasm/cache.key", Part.KEY),
        ("worker/device.json", Part.KEY),
        ("local-workers/1/worker/device.json", Part.KEY),
        ("palyra.db-wal", Part.PASSING),
        ("daemon.lock", Part.PASSING),
        ("palyra.ballast", Part.PASSING),
        ("instances/01ABC", Part.PASSING),
        ("wasm/compiled/ab.cwasm", Part.PASSING),
        ("local-workers/1/worker/scratch/x", Part.PASSING),
        (".palyra.db.0011.new", Part.PASSING),
        ("workspace/notes.key", Part.WORKSPACE),
    ],
)
def test_every_file_has_its_part(name: str, part: Part) -> None:
    assert part_of(name) is part


@pytest.mark.parametrize("name", ["palyra.db", "skills/acme.notes/data/a b", "a/b/c"])
def test_plain_names_pass(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "a/",
        "./a",
        "a\0b",
        "a\nb",
        "!manifest",
        "a/" * 20 + "b",
        "x" * 600,
    ],
)
def test_names_that_could_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(BadEntry):
        check_name(name)
