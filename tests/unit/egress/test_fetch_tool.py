"""tool.py: the schemas and what a call would reach."""

import pytest

from palyra.egress.client.request import FetchRequest
from palyra.egress.limits import DEFAULT_MAX_BYTES, MAX_MAX_BYTES
from palyra.executors.fetch.spec import DESCRIPTION, INPUT_SCHEMA, OUTPUT_SCHEMA, most_wire_bytes, touched_host
from palyra.json_schema import SchemaCheck, SchemaMismatch

CHECK = SchemaCheck(INPUT_SCHEMA)


def test_the_schemas_are_usable() -> None:
    SchemaCheck(OUTPUT_SCHEMA)
    CHECK.require({"url": "https://a.test/", "method": "POST", "headers": {"X": "1"}, "body": "x", "format": "text"})
    assert "never instructions" in DESCRIPTION


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"url": ""},
        {"url": "x" * 10_000},
        {"url": "https://a.test/", "method": "TRACE"},
        {"url": "https://a.test/", "headers": {"X": 1}},
        {"url": "https://a.test/", "headers": [["X", "1"]]},
        {"url": "https://a.test/", "redirect": "always"},
        {"url": "https://a.test/", "max_bytes": MAX_MAX_BYTES + 1},
        {"url": "https://a.test/", "timeout_ms": 0},
        {"url": "https://a.test/", "proxy": "http://b.test/"},
        {"url": "https://a.test/", "verify": False},
    ],
)
def test_arguments_that_are_refused_before_anything_else(arguments: dict[str, object]) -> None:
    with pytest.raises(SchemaMismatch):
        CHECK.require(arguments)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://A.test/x", "a.test"),
        ("http://a.test/", "a.test"),
        ("https://a.test:8443/", "a.test:8443"),
        ("http://[2001:db8::1]:81/", "[2001:db8::1]:81"),
    ],
)
def test_hosts_are_named_as_rules_are(url: str, host: str) -> None:
    assert touched_host(FetchRequest.parse({"url": url})) == host


def test_what_is_reserved_covers_what_can_be_moved() -> None:
    assert most_wire_bytes({"url": "x"}) > DEFAULT_MAX_BYTES
    assert most_wire_bytes({"url": "x", "max_bytes": MAX_MAX_BYTES}) > MAX_MAX_BYTES
    assert most_wire_bytes({"url": "x", "body": "y" * 100}) - most_wire_bytes({"url": "x"}) >= 600
    assert most_wire_bytes({"url": "x", "redirect": "refuse"}) < most_wire_bytes({"url": "x"})
