"""``skill.toml`` and the capabilities in it: what is read, and that every refusal names its line."""

from pathlib import Path

import pytest

from fakes.skill_harness import manifest
from palyra.skills.limits import MAX_MANIFEST_BYTES
from palyra.skills.package.capabilities import WasiGroup, Wildcard
from palyra.skills.package.manifest import SkillAbi, ToolRisk, parse_manifest
from palyra.skills.package.toml_reader import MalformedManifest

WHOLE = """
manifest_version = 1
skill_id = "acme.mail-tools"
name = "Mail"
version = "1.2.0-rc.1"
publisher = "acme"
description = "Reads mail."
license = "MIT"

[[entrypoints.tools]]
id = "send"
title = "Send a mail"
description = "Sends."
module = "mail.wasm"
input_schema = '{"type": "object", "properties": {"to": {"type": "string"}}}'
output_schema = { type = "object" }
risk = "high"

[[entrypoints.tools]]
id = "count"
description = "Counts."
module = "mail.wasm"
idempotent = true
[entrypoints.tools.input_schema]
type = "object"
[entrypoints.tools.output_schema]
type = "object"

[capabilities]
http_egress_allowlist = ["*.acme.io", "API.acme.com:8443"]
secrets = ["token", "global/shared"]
reveal_secrets = ["token"]
secret_headers = ["X-Api-Key", "Private-Token"]
channels = ["alerts"]
device = ["camera"]
node = ["gpu"]
wasi = ["clocks"]
wildcard_opt_in = ["http", "storage"]
[capabilities.filesystem]
read_roots = ["*"]
write_roots = ["notes/drafts"]
[capabilities.quotas]
fuel_budget = 50000000
timeout_ms = 5000

[compat]
min_palyra_version = "0.1.0"
abi = "core"

[trust]
review_required = true
requires_allowlisted_publisher = true
security_contact = "mailto:security@acme.io"

[operator]
summary = "For mail."
documentation = "https://acme.io/docs"
tags = ["mail"]
[operator.configuration]
schema = { type = "object", properties = { limit = { type = "integer" } }, required = ["limit", "server"] }
defaults = { limit = 5 }
"""


def test_a_whole_manifest_is_read() -> None:
    read = parse_manifest(WHOLE.encode())
    assert (read.skill_id, read.version, read.publisher) == ("acme.mail-tools", "1.2.0-rc.1", "acme")
    send, count = read.tools
    assert (send.risk, count.risk, count.idempotent, count.title) == (ToolRisk.HIGH, ToolRisk.MEDIUM, True, "count")
    assert send.input_schema["properties"] == {"to": {"type": "string"}}
    assert read.tool_name(send) == "skill.acme.mail-tools.send" and read.modules() == ("mail.wasm",)
    asked = read.capabilities
    assert asked.http_egress_allowlist == ("*.acme.io", "api.acme.com:8443")
    assert asked.secrets == ("global/shared", "skill:acme.mail-tools/token")
    assert asked.reveal_secrets == ("skill:acme.mail-tools/token",)
    assert asked.secret_headers == ("Private-Token", "X-Api-Key")
    assert all(map(asked.may_carry_secrets, ("authorization", "Authorization", "x_api_key", "PRIVATE-TOKEN")))
    assert not any(map(asked.may_carry_secrets, ("Cookie", "X-Api-Key2", "", "Proxy-Authorization")))
    assert asked.wildcard_opt_in == (Wildcard.HTTP, Wildcard.STORAGE) and asked.wasi == (WasiGroup.CLOCKS,)
    assert (asked.quotas.fuel_budget, asked.quotas.max_memory_bytes) == (50_000_000, None)
    assert read.compat.abi is SkillAbi.CORE and read.trust.requires_allowlisted_publisher
    assert read.operator.configuration_defaults == {"limit": 5}


def refusal(old: str, new: str) -> tuple[int, str]:
    assert old in WHOLE
    with pytest.raises(MalformedManifest) as refused:
        parse_manifest(WHOLE.replace(old, new, 1).encode())
    return refused.value.details["line"], refused.value.message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('version = "1.2.0-rc.1"', 'version = "1.2"', "write MAJOR.MINOR.PATCH"),
        ('"API.acme.com:8443"', '"https://api.acme.com/"', "write HOST, HOST:PORT"),
    ],
)
def test_a_value_of_another_concept_is_refused_with_that_concepts_hint(old: str, new: str, words: str) -> None:
    assert old in WHOLE
    with pytest.raises(MalformedManifest) as refused:
        parse_manifest(WHOLE.replace(old, new, 1).encode())
    assert words in refused.value.hint


def line_of(text: str, marker: str) -> int:
    return next(number for number, line in enumerate(text.split("\n"), start=1) if marker in line)


@pytest.mark.promise("P-clear-errors")
@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('skill_id = "acme.mail-tools"', 'skill_id = "Acme"', "skill_id may not be 'Acme': it is lower-case words"),
        ('skill_id = "acme.mail-tools"', f'skill_id = "a{"b" * 72}"', "at most 72"),
        ('skill_id = "acme.mail-tools"', 'skill_id = 7', "a whole number"),
        ('name = "Mail"', 'nmae = "Mail"', "name is missing"),
        ('name = "Mail"', 'name = ""', "empty"),
        ('name = "Mail"', 'name = "Ma\u202eil"', "U+202E"),
        ('version = "1.2.0-rc.1"', 'version = "1.2"', "not a version such as 1.0.0"),
        ('version = "1.2.0-rc.1"', 'version = "1.2.0+abc"', "not a version"),
        ('publisher = "acme"', 'publisher = "acme inc"', "publisher may not be 'acme inc': it is lower-case letters"),
        ('license = "MIT"', 'license = "MIT"\nlicence = "MIT"', "did you mean license"),
        ('id = "send"', 'id = "send.all"', "it is a lower-case word without dots"),
        ('id = "count"', 'id = "send"', "two tools"),
        ('module = "mail.wasm"', 'module = "../mail.wasm"', "it is the name of a file that ends in .wasm"),
        ('module = "mail.wasm"', 'module = "mail.wasm"\nrisks = 1', "did you mean risk"),
        ('description = "Sends."', 'description = "Sends\u200b."', "U+200B"),
        ('risk = "high"', 'risk = "none"', "low, medium, high"),
        ("idempotent = true", 'idempotent = "yes"', "true or false"),
        ("input_schema = '{\"type\"", "input_schema = '{\"type\": 1, \"type\"", "stands twice"),
        ("output_schema = { type = \"object\" }", "output_schema = { type = \"array\" }", "describe an object"),
        ("output_schema = { type = \"object\" }", "output_schema = { type = 1979-05-27 }", "such as a date"),
        ("output_schema = { type = \"object\" }", "output_schema = { \"$ref\" = \"http://x.io/s\" }", "refers to"),
        ('"API.acme.com:8443"]', '"API.acme.com:8443", "https://acme.io"]', "no host rule"),
        ('"API.acme.com:8443"]', '"api.acme.com:8443", "API.acme.com:8443"]', "twice"),
        ('"API.acme.com:8443"]', '"*"]', "no host rule"),
        ('secrets = ["token", "global/shared"]', 'secrets = ["token", "channel:mcp/x"]', "neither"),
        ('secrets = ["token", "global/shared"]', 'secrets = ["token", "skill:other/x"]', "neither"),
        ('secrets = ["token", "global/shared"]', 'secrets = ["token", "token"]', "twice"),
        ('reveal_secrets = ["token"]', 'reveal_secrets = ["other"]', "which secrets does not"),
        ('"Private-Token"]', '"x_api_key"]', "twice"),
        ('"Private-Token"]', '"Host"]', "not a caller's to set"),
        ('"Private-Token"]', '"Range"]', "changes the form of the answer"),
        ('"Private-Token"]', '"No Name"]', "is no header name"),
        ('channels = ["alerts"]', 'channels = ["*"]', "wildcard_opt_in"),
        ('channels = ["alerts"]', 'channels = ["al*"]', "no such wildcards"),
        ('device = ["camera"]', 'device = ["*"]', "no such wildcards"),
        ('wasi = ["clocks"]', 'wasi = ["threads"]', "wasi knows"),
        ('wildcard_opt_in = ["http", "storage"]', 'wildcard_opt_in = ["everything"]', "wildcard_opt_in knows"),
        ('write_roots = ["notes/drafts"]', 'write_roots = ["../x"]', "../x"),
        ('write_roots = ["notes/drafts"]', 'write_roots = ["/etc"]', "/etc"),
        ("timeout_ms = 5000", "timeout_ms = 0", "between 1"),
        ("timeout_ms = 5000", "timeout_ms = true", "not a whole number"),
        ("timeout_ms = 5000", "timout_ms = 5000", "did you mean timeout_ms"),
        ('abi = "core"', 'abi = "native"', "core, component"),
        ('min_palyra_version = "0.1.0"', 'min_palyra_version = "latest"', "not a version"),
        ("review_required = true", "review_required = false", "review"),
        ('security_contact = "mailto:security@acme.io"', 'security_contact = "ring us"', "security_contact"),
        ('documentation = "https://acme.io/docs"', 'documentation = "javascript:alert(1)"', "documentation"),
        ("defaults = { limit = 5 }", 'defaults = { limit = "five" }', "do not fit"),
        ("manifest_version = 1", "manifest_version = 2", "manifest_version is 2"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_line_and_the_reason(old: str, new: str, word: str) -> None:
    line, message = refusal(old, new)
    assert word in message and message.startswith(f"line {line}: ")
    where = WHOLE[: WHOLE.index(old)].count("\n") + 1 + new.count("\n")
    # What is missing stands nowhere: the line is that of the table, here the document.
    assert line == (1 if "missing" in word else where)


def test_the_line_of_an_item_in_a_long_list_is_its_own() -> None:
    text = manifest(capabilities='http_egress_allowlist = [\n  "good.io",\n  "https://bad",\n  "fine.io",\n]').decode()
    with pytest.raises(MalformedManifest) as refused:
        parse_manifest(text.encode())
    assert refused.value.details == {
        "line": line_of(text, "https://bad"),
        "key": "capabilities.http_egress_allowlist[1]",
    }


def test_the_line_of_a_key_of_the_second_table_is_its_own() -> None:
    text = manifest(more='\n[[entrypoints.tools]]\nid = "b"\ndescription = "B."\nmodule = "main.wasm"\nrisk = "odd"\n')
    with pytest.raises(MalformedManifest) as refused:
        parse_manifest(text)
    # The schemas are missing and come first.
    assert refused.value.details["line"] == line_of(text.decode(), 'id = "b"') - 1


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"manifest_version = 1\nskill_id = ", 2),
        (b"a = 1\na = 2\n", 2),
        (b"a = 1\nb = \xff\n", 2),
        (b"", 1),
        (b"a = " + b"[" * 5000, 1),
    ],
)
def test_what_is_not_toml_is_refused_with_a_line(raw: bytes, line: int) -> None:
    with pytest.raises(MalformedManifest) as refused:
        parse_manifest(raw)
    assert refused.value.message.startswith(f"line {line}: ")


def test_wildcards_need_their_own_opt_in() -> None:
    for capability, kind in (('http_egress_allowlist = ["*.acme.io"]', "http"), ('channels = ["*"]', "channels")):
        with pytest.raises(MalformedManifest, match=f'wildcard_opt_in = \\["{kind}"\\]'):
            parse_manifest(manifest(capabilities=capability + '\nwildcard_opt_in = ["storage"]'))
        parse_manifest(manifest(capabilities=f'{capability}\nwildcard_opt_in = ["{kind}"]'))


@pytest.mark.promise("P-limits")
def test_a_huge_manifest_is_not_even_parsed() -> None:
    with pytest.raises(MalformedManifest, match="larger"):
        parse_manifest(b"#" * (MAX_MANIFEST_BYTES + 1))


def test_the_example_of_the_reference_page_is_a_manifest() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "skill-manifest.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    read = parse_manifest(example.encode())
    assert read.skill_id == "acme.notes" and read.operator.configuration_defaults == {"prefix": "note"}
    # Every key that the example shows is explained below it.
    explained = page.partition("## Identity")[2]
    for line in example.splitlines():
        key = line.partition(" = ")[0]
        if " = " in line and key not in ("type",):
            assert f"`{key}`" in explained or f".{key}`" in explained, key
