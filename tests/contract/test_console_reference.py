"""docs/reference/console-api.md lists every route of the console, its role and the fields of its body; no other."""

import re
from pathlib import Path

import msgspec

from palyra.errors import PalyraError
from palyra.server.console.app import SECTIONS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "console-api.md").read_text(encoding="utf-8")


def listed() -> dict[str, tuple[str, set[str]]]:
    rows = re.findall(r"^\| `([A-Z]+ /console/\S+)` \| (\w+) \|(.*)\|$", TEXT, re.MULTILINE)
    return {route: (role, set(re.findall(r"`([a-z_]+)`", body))) for route, role, body in rows}


def test_every_route_is_listed_with_its_role_and_fields() -> None:
    found: dict[str, tuple[str, set[str]]] = {}
    for section in SECTIONS:
        for reading in (*section.listings, *section.downloads):
            found[f"GET {reading.path}"] = (reading.role.value, set())
        for write in section.writes:
            fields = {field.encode_name for field in msgspec.structs.fields(write.body)}
            found[f"{write.method} {write.path}"] = (write.role.value, fields)
    assert listed() == found


def test_every_code_that_is_named_exists() -> None:
    assert set(re.findall(r"`(console\.[a-z_]+)`", TEXT)) <= PalyraError.registry.keys()
