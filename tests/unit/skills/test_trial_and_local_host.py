import os

import msgspec
import pytest

from fakes.skill_harness import manifest
from palyra.skills.build.project import BadProject, Example, Exchange
from palyra.skills.build.trial import (
    BadTrialInput,
    BadTrialOutput,
    NoSuchTool,
    NotRequested,
    check_input,
    check_output,
    choose_tool,
    describe_grants,
    shortcomings,
    trial_grants,
    trial_limits,
)
from palyra.skills.build.trial_host import LocalHost
from palyra.skills.package.capabilities import Capabilities, FilesystemRequest, Quotas
from palyra.skills.package.configuration import ConfigurationGiven, ConfigurationRefused
from palyra.skills.package.manifest import SkillTool, parse_manifest
from palyra.wasm.domain.grants import Capability
from palyra.wasm.domain.host_interface import AttachedSecret, GuestRequest, HostRefusal, Status

REQUESTED = Capabilities(
    http_egress_allowlist=("a.example", "b.example:8443"),
    secrets=("skill:x/key", "global/other"),
    reveal_secrets=("skill:x/key",),
    channels=("news",),
    filesystem=FilesystemRequest(read_roots=("old",), write_roots=("notes",)),
    quotas=Quotas(fuel_budget=77, storage_bytes=10, timeout_ms=5),
)
MANIFEST = parse_manifest(manifest())
REQUEST = GuestRequest(method="GET", path="/x", max_response_bytes=100)


def test_without_a_word_only_what_stays_here_is_granted():
    grants = trial_grants(REQUESTED, ())
    assert (grants.http_hosts, grants.secret_keys) == ((), ())
    assert (grants.storage_prefixes, grants.channels) == (("notes", "old"), ("news",))
    assert describe_grants(grants)[0] == "storage:notes as handle 30000"


def test_grants_are_by_kind_or_by_name():
    grants = trial_grants(REQUESTED, ("http", "secret:key"))
    assert grants.http_hosts == ("a.example", "b.example:8443")
    assert grants.secret_keys == grants.revealable_secrets == ("skill:x/key",)
    assert trial_grants(REQUESTED, ("http:a.example",)).http_hosts == ("a.example",)
    assert trial_grants(REQUESTED, ("all",)).counts() == (2, 2, 2, 1)


@pytest.mark.parametrize("word", ["http:c.example", "files", "storage:", "channel:other"])
def test_nothing_is_granted_that_the_manifest_does_not_ask_for(word):
    with pytest.raises(NotRequested):
        trial_grants(REQUESTED, (word,))


def test_limits_are_the_quotas():
    limits, timeout_ms = trial_limits(REQUESTED)
    assert (limits.fuel_budget, timeout_ms) == (77, 5)


def tool(**options):
    words = {"id": "t", "title": "t", "description": "d", "module": "m.wasm", **options}
    return SkillTool(**{"input_schema": {"type": "object"}, "output_schema": {"type": "object"}, **words})


def test_the_configuration_comes_beside_the_input_as_it_does_once_installed():
    schema = """'{"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false}'"""
    configured = parse_manifest(manifest(more=f"[operator.configuration]\nschema = {schema}\ndefaults = {{ n = 1 }}\n"))
    assert check_input(configured, tool(), {"a": 1}) == b'{"a":1,"_config":{"n":1}}'
    assert check_input(configured, tool(), {"_config": "mine"}, {"n": 2}) == b'{"_config":{"n":2}}'
    with pytest.raises(ConfigurationGiven):
        check_input(MANIFEST, tool(), {"a": 1, "_config": "mine"})
    with pytest.raises(ConfigurationRefused):
        check_input(configured, tool(), {}, {"m": 2})
    with pytest.raises(ConfigurationRefused):
        check_input(MANIFEST, tool(), {}, {"n": 2})
    with pytest.raises(BadTrialInput):
        check_input(configured, tool(), {}, [2])


def test_input_and_output_are_held_to_their_schemas():
    strict = {"type": "object", "required": ["a"]}
    assert check_input(MANIFEST, tool(input_schema=strict), {"a": 1}) == b'{"a":1}'
    for value in ({}, [1]):
        with pytest.raises(BadTrialInput):
            check_input(MANIFEST, tool(input_schema=strict), value)
    assert check_output(tool(), b'{"x": 1}') == {"x": 1}
    assert check_output(tool(), 3) == 3
    for raw in (b"{", b"[]", b'{"a": 1, "a": 2}'):
        with pytest.raises(BadTrialOutput):
            check_output(tool(), raw)


def test_a_tool_is_chosen_by_id():
    text = 'manifest_version = 1\nskill_id = "a"\nname = "a"\nversion = "1.0.0"\npublisher = "p"\n'
    for name in ("one", "two"):
        text += f'[[entrypoints.tools]]\nid = "{name}"\ndescription = "d"\nmodule = "m.wasm"\n'
        text += 'input_schema = {type = "object"}\noutput_schema = {type = "object"}\n'
    manifest = parse_manifest(text.encode())
    assert choose_tool(manifest, "two").id == "two"
    for wrong in (None, "three"):
        with pytest.raises(NoSuchTool, match="one, two"):
            choose_tool(manifest, wrong)


def judged(example, **options):
    given = {"output": {"a": 1}, "error": None, "stored": {}, "messages": (), "unused": 0, **options}
    return shortcomings(example, **given)


def test_an_example_is_held_to_what_it_says():
    expected = Example(tool="t", input={}, output={"a": 1})
    assert judged(expected) == []
    assert judged(expected, output={"a": 2})
    assert judged(expected, error="broken")
    assert judged(expected, unused=1)
    failing = Example(tool="t", input={}, error="no such")
    assert judged(failing, error="there is no such note") == []
    assert judged(failing)
    assert judged(failing, error="other")
    stored = Example(tool="t", input={}, output={"a": 1}, storage_after={"n/a": "x"}, messages=(("news", "hi"),))
    assert judged(stored, stored={"n/a": b"x"}, messages=[("news", "hi")]) == []
    assert len(judged(stored, stored={"n/a": b"y"}, messages=[])) == 2


async def refused(awaitable):
    with pytest.raises(HostRefusal) as refusal:
        await awaitable
    return refusal.value.status


async def test_storage_keeps_within_its_roots_and_quota():
    grants = trial_grants(REQUESTED, ())
    notes, old = grants.handles(Capability.STORAGE)
    host = LocalHost(REQUESTED, stored={"old/a": b"1"})
    await host.storage_put(notes, "b", b"12345")
    assert host.stored == {"old/a": b"1", "notes/b": b"12345"}
    assert await host.storage_list(notes, "") == ("b",)
    assert await host.storage_get(old, "a") == b"1"
    assert await refused(host.storage_get(notes, "a")) is Status.NOT_FOUND
    assert await refused(host.storage_put(old, "a", b"")) is Status.DENIED
    assert await refused(host.storage_delete(old, "a")) is Status.DENIED
    assert await refused(host.storage_put(notes, "c", b"123456")) is Status.QUOTA
    await host.storage_delete(notes, "b")
    assert await refused(host.storage_delete(notes, "b")) is Status.NOT_FOUND


@pytest.mark.parametrize("kind", ["pipe", "link", "huge"])
def test_storage_that_came_with_a_project_is_made_of_ordinary_files(tmp_path, kind):
    """A pipe would keep a trial waiting for ever, and a file that is mostly hole would fill the memory."""
    place = tmp_path / "s" / "notes" / "k"
    place.parent.mkdir(parents=True)
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "link":
            place.symlink_to(tmp_path / "elsewhere")
        case _:
            place.touch()
            os.truncate(place, 1 << 40)
    with pytest.raises(BadProject, match=r"ordinary files|holds more than"):
        LocalHost(REQUESTED, folder=tmp_path / "s")


async def test_storage_in_a_folder_stays(tmp_path):
    notes = trial_grants(REQUESTED, ()).handles(Capability.STORAGE)[0]
    await LocalHost(REQUESTED, folder=tmp_path / "s").storage_put(notes, "deep/b", b"x")
    again = LocalHost(REQUESTED, folder=tmp_path / "s")
    assert await again.storage_get(notes, "deep/b") == b"x"
    await again.storage_delete(notes, "deep/b")
    assert LocalHost(REQUESTED, folder=tmp_path / "s").stored == {}


async def test_requests_are_answered_from_the_example_once():
    host_grant = trial_grants(REQUESTED, ("http",)).handles(Capability.HTTP)[0]
    host = LocalHost(REQUESTED, exchanges=(Exchange(host="a.example", path="/x", status=201, body="hi"),))
    answer = await host.http(host_grant, REQUEST)
    assert (answer.status, answer.body) == (201, b"hi")
    assert host.unused_exchanges == ()
    assert await refused(host.http(host_grant, REQUEST)) is Status.UNAVAILABLE
    assert host.failures == ["GET /x at a.example: the example has no such request"]


async def test_a_host_that_is_not_there_is_a_status():
    host_grant = trial_grants(Capabilities(http_egress_allowlist=("127.0.0.1:9",)), ("http",)).handles(Capability.HTTP)
    host = LocalHost(REQUESTED)
    assert await refused(host.http(host_grant[0], REQUEST)) is Status.UNAVAILABLE
    (why,) = host.failures
    assert why.startswith("GET /x at 127.0.0.1:9: ") and "refused" in why


async def test_an_author_learns_which_secret_a_trial_lacks_and_never_its_value():
    asked = Capabilities(http_egress_allowlist=("127.0.0.1:9",), secrets=("skill:x/key",), secret_headers=("X-Key",))
    grants = trial_grants(asked, ("all",))
    (http,), (secret,) = grants.handles(Capability.HTTP), grants.handles(Capability.SECRET)
    request = msgspec.structs.replace(REQUEST, secrets=(AttachedSecret(secret=secret, header="x-key", prefix=""),))
    host = LocalHost(asked)
    assert await refused(host.http(http, request)) is Status.NOT_FOUND
    assert host.failures == ["GET /x at 127.0.0.1:9: the trial has no value of skill:x/key: see --secrets"]
    odd = LocalHost(asked, secrets={"skill:x/key": "one\nline-too-many"})
    assert await refused(odd.http(http, request)) is Status.UNAVAILABLE
    assert "too-many" not in str(odd.failures), "the library's words have the header in them"


@pytest.mark.parametrize("exchanges", [None, ()], ids=["really sent", "from an example"])
async def test_a_trial_attaches_secrets_to_no_other_headers_than_a_daemon(exchanges):
    # An address of this machine: were it sent after all, it would go nowhere else.
    asked = Capabilities(http_egress_allowlist=("127.0.0.1:9",), secrets=("skill:x/key",))
    grants = trial_grants(asked, ("all",))
    (http,), (secret,) = grants.handles(Capability.HTTP), grants.handles(Capability.SECRET)
    request = msgspec.structs.replace(REQUEST, secrets=(AttachedSecret(secret=secret, header="X-Note", prefix=""),))
    host = LocalHost(asked, exchanges=exchanges, secrets={secret.name: "v"})
    assert await refused(host.http(http, request)) is Status.DENIED
    assert host.failures == ["GET /x at 127.0.0.1:9: secret_headers of skill.toml does not name X-Note"]


async def test_only_secrets_that_may_be_seen_are_shown():
    other, key = trial_grants(REQUESTED, ("secret",)).handles(Capability.SECRET)
    host = LocalHost(REQUESTED, secrets={"skill:x/key": "k", "global/other": "o"})
    assert await host.secret_reveal(key) == "k"
    assert await refused(host.secret_reveal(other)) is Status.DENIED
    assert await refused(LocalHost(REQUESTED).secret_reveal(key)) is Status.NOT_FOUND


async def test_messages_are_kept():
    host = LocalHost(REQUESTED)
    await host.channel_send(trial_grants(REQUESTED, ()).handles(Capability.CHANNEL)[0], "hi")
    assert host.messages == [("news", "hi")]
