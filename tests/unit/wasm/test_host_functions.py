"""Core modules and what they can do with handles."""

from pathlib import Path

import pytest

from fakes.wasm_guests import GRANTS, FakeServices, imported, minimal, open_runtime, text_at
from palyra.errors import Denied, LimitExceeded, Unavailable
from palyra.wasm.domain.grants import Capability
from palyra.wasm.domain.host_interface import CORE_TYPES, GuestResponse, HostRefusal, Status
from palyra.wasm.domain.limits import RuntimeLimits

MEMORY = '(memory (export "memory") 1)'


async def run(tmp_path, body, *imports, data="", services=None, limits=None, grants=GRANTS):
    """Return the exit code of a guest, and the outcome."""
    before = " ".join(imported(name, count) for name, count in imports)
    guest = minimal(body, before=before, memory=MEMORY + data)
    async with open_runtime(tmp_path) as runtime:
        return await runtime.run(
            await runtime.compile(guest), grants=grants, services=services or FakeServices(), limits=limits
        )


@pytest.mark.parametrize(
    ("kind", "count", "base"),
    [("http", 2, 10_000), ("secret", 2, 20_000), ("storage", 1, 30_000), ("channel", 1, 40_000)],
)
async def test_counts_and_handles_are_those_of_the_first_interface(tmp_path, kind, count, base):
    body = f"""(i32.add (i32.mul (call ${kind}-count) (i32.const 100000))
      (call ${kind}-handle (i32.sub (call ${kind}-count) (i32.const 1))))"""
    outcome = await run(tmp_path, body, (f"{kind}-count", 0), (f"{kind}-handle", 1))
    assert outcome.output == count * 100_000 + base + count - 1


async def test_an_index_without_a_grant_is_a_bad_handle(tmp_path):
    outcome = await run(tmp_path, "(call $http-handle (i32.const 2))", ("http-handle", 1))
    assert outcome.output == Status.BAD_HANDLE


HEAD = '{"method":"POST","path":"/v1/x?y=1","headers":[["accept","text/plain"]]}'


async def test_a_request_goes_to_the_host_behind_the_handle_with_its_secret(tmp_path):
    services = FakeServices()
    services.response = GuestResponse(status=201, headers=(("x", "y"),), body=b"\x00\xffbody")
    data = text_at(0, HEAD) + text_at(200, "sent") + text_at(300, "Authorization") + text_at(320, "Bearer ")
    body = f"""(drop (call $secret-attach (i32.const 20001) (i32.const 10000) (i32.const 300) (i32.const 13)
        (i32.const 320) (i32.const 7)))
      (drop (call $http-send (i32.const 10000) (i32.const 0) (i32.const {len(HEAD)}) (i32.const 200) (i32.const 4)))
      (drop (call $result-read (i32.const 0) (i32.const 1000) (i32.const 4000)))
      (drop (call $log (i32.const 1) (i32.const 1000) (i32.const 38)))
      (call $http-send (i32.const 10000) (i32.const 0) (i32.const {len(HEAD)}) (i32.const 200) (i32.const 4))"""
    outcome = await run(
        tmp_path,
        body,
        ("secret-attach", 6),
        ("http-send", 5),
        ("result-read", 3),
        ("log", 3),
        data=data,
        services=services,
    )
    (_, (grant, first)), (_, (_, second)) = services.asked
    assert (grant.kind, grant.name) == (Capability.HTTP, "a.example")
    assert (first.method, first.path, first.headers, first.body) == (
        "POST",
        "/v1/x?y=1",
        (("accept", "text/plain"),),
        b"sent",
    )
    assert [(secret.secret.name, secret.header, secret.prefix) for secret in first.secrets] == [
        ("token", "Authorization", "Bearer ")
    ]
    assert second.secrets == (), "a secret goes with one request only"
    line = b'{"status":201,"headers":[["x","y"]]}\n'
    assert outcome.output == len(line) + 6
    assert outcome.logs[0].text == line.decode().replace("\n", "\\u{a}") + "\\u{0}"
    assert outcome.usage.outside_calls == 2


async def test_only_a_secret_with_its_own_grant_is_revealed(tmp_path):
    services = FakeServices()
    body = """(drop (call $secret-reveal (i32.const 20000)))
      (drop (call $result-read (i32.const 0) (i32.const 0) (i32.const 100)))
      (drop (call $log (i32.const 0) (i32.const 0) (i32.const 17)))
      (call $secret-reveal (i32.const 20001))"""
    outcome = await run(tmp_path, body, ("secret-reveal", 1), ("result-read", 3), ("log", 3), services=services)
    assert outcome.output == Status.DENIED
    assert outcome.logs[0].text == "value of password"
    assert [what for what, _ in services.asked] == ["reveal"]


async def test_storage_keeps_gets_lists_and_deletes(tmp_path):
    services = FakeServices()
    data = text_at(0, "a/b") + text_at(10, "value") + text_at(20, "a/")
    body = """(drop (call $storage-put (i32.const 30000) (i32.const 0) (i32.const 3) (i32.const 10) (i32.const 5)))
      (if (i32.ne (call $storage-get (i32.const 30000) (i32.const 0) (i32.const 3)) (i32.const 5)) (then unreachable))
      (if (i32.ne (call $storage-list (i32.const 30000) (i32.const 20) (i32.const 2)) (i32.const 7)) (then unreachable))
      (drop (call $result-read (i32.const 0) (i32.const 100) (i32.const 7)))
      (drop (call $log (i32.const 3) (i32.const 100) (i32.const 7)))
      (drop (call $storage-delete (i32.const 30000) (i32.const 0) (i32.const 3)))
      (call $storage-get (i32.const 30000) (i32.const 0) (i32.const 3))"""
    imports = (("storage-put", 5), ("storage-get", 3), ("storage-list", 3), ("storage-delete", 3))
    outcome = await run(tmp_path, body, *imports, ("result-read", 3), ("log", 3), data=data, services=services)
    assert outcome.output == Status.NOT_FOUND
    assert outcome.logs[0].text == '["a/b"]'
    assert outcome.logs[0].level == "error"
    assert [what for what, _ in services.asked] == ["put", "get", "list", "delete", "get"]


async def test_a_message_is_sent_to_the_channel(tmp_path):
    services = FakeServices()
    body = "(call $channel-send (i32.const 40000) (i32.const 0) (i32.const 5))"
    outcome = await run(tmp_path, body, ("channel-send", 3), data=text_at(0, "hellö"[:4] + "x"), services=services)
    assert outcome.output == Status.OK
    assert services.asked[0][1][1] == "hellx"


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (HostRefusal(Status.NOT_FOUND), Status.NOT_FOUND),
        (Denied("no"), Status.DENIED),
        (LimitExceeded("no"), Status.QUOTA),
        (Unavailable("no"), Status.UNAVAILABLE),
        (ValueError("a fault of the host"), Status.FAILED),
    ],
)
async def test_what_goes_wrong_outside_is_a_status_and_no_text(tmp_path, problem, status):
    services = FakeServices()
    services.problem = problem
    outcome = await run(
        tmp_path,
        "(call $channel-send (i32.const 40000) (i32.const 0) (i32.const 0))",
        ("channel-send", 3),
        services=services,
    )
    assert outcome.output == status


async def test_too_many_calls_of_the_outside_are_refused_and_counted(tmp_path):
    services = FakeServices()
    body = """(local $n i32) (local $last i32)
      (loop $l (local.set $last (call $channel-send (i32.const 40000) (i32.const 0) (i32.const 0)))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $l (i32.lt_u (local.get $n) (i32.const 5))))
      (local.get $last)"""
    outcome = await run(
        tmp_path, body, ("channel-send", 3), services=services, limits=RuntimeLimits(max_outside_calls=3)
    )
    assert outcome.output == Status.QUOTA
    assert len(services.asked) == 3


def test_every_function_of_the_table_is_tried_here():
    text = Path(__file__).read_text()
    assert [
        name for name in CORE_TYPES if not (f'"{name}"' in text or name.endswith(("-count", "-handle", "fail")))
    ] == []
