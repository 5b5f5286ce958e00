"""``/v1/workers`` and ``/v1/leases`` as an operator meets them, and as nobody else does."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.fleet_peers import BUILD, FleetPeers, numbered
from fakes.gateway_harness import GatewayHarness, open_harness
from fakes.node_state_harness import node_record
from fakes.raw_http import RawAnswer, ask, make_token, operator
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.identity.api_tokens import TokenScope
from palyra.identity.device import DeviceId, DeviceKind
from palyra.server.http.app import create_app

POLICY = WorkerFleetPolicy(require_egress_binding=False)


class WorkersApi:
    def __init__(self, harness: GatewayHarness, token: str) -> None:
        self.harness, self.token = harness, token
        self.app = create_app(harness.gateway.service)
        self.peers = FleetPeers(POLICY)
        self.fleet = harness.gateway.workers

    async def __call__(self, method: str, path: str, body: object = b"", token: str | None = None) -> RawAnswer:
        return await ask(self.app, method, f"/v1{path}", token=token or self.token, body=body)

    async def worker(self, number: int = 1, **attested: Any) -> str:
        """One that has attested itself, without its connection."""
        opened = await self.fleet.ledger.decide(self.peers.open_session(numbered(number)))
        assert opened.worker is not None
        now_ms = self.harness.gateway.clock.now_ms()
        said = {"egress_proxy_attested": False, "egress_binding": "", **attested}
        await self.fleet.ledger.decide(self.peers.present(opened.worker, now_ms, **said))
        return opened.worker.worker_id

    async def lease(self, worker_id: str) -> str:
        lease = await self.peers.leased(self.fleet.ledger, worker_id, now_ms=self.harness.gateway.clock.now_ms())
        return lease.lease_id


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[WorkersApi]:
    async with open_harness(
        tmp_path, {"workers": {"require_egress_binding": False, "build_digests": [BUILD]}}
    ) as harness:
        yield WorkersApi(harness, await operator(harness))


async def test_workers_and_their_leases_are_listed_and_shown(api: WorkersApi) -> None:
    assert (await api("GET", "/workers")).data == {"workers": []}
    worker_id = await api.worker()
    lease_id = await api.lease(worker_id)
    (listed,) = (await api("GET", "/workers")).data["workers"]
    assert (listed["worker_id"], listed["state"], listed["open_leases"]) == (worker_id, "busy", 1)
    assert listed["attestation"]["capabilities"] == ["tier.b", "tier.c"] and "leases" not in listed
    for name in (worker_id, "worker%201"):
        shown = (await api("GET", f"/workers/{name}")).data
        assert [one["lease_id"] for one in shown["leases"]] == [lease_id]
    (one,) = (await api("GET", f"/leases?worker={worker_id}")).data["leases"]
    assert (one["lease_id"], one["state"], one["fence"], one["outcome"]) == (lease_id, "open", 1, None)
    api.fleet.output.add(lease_id, 1, 0, b"half\xff")
    assert (await api("GET", f"/leases/{lease_id}")).data["output"] == {"stdout": "half�", "stderr": ""}


async def test_an_operator_drains_quarantines_and_releases(api: WorkersApi) -> None:
    worker_id = await api.worker()
    drained = await api("POST", f"/workers/{worker_id}/drain", {"reason": "new disk"})
    assert (drained.data["state"], drained.data["reason"]) == ("draining", "new disk")
    assert (await api("POST", f"/workers/{worker_id}/resume", {})).data["state"] == "registered"
    lease_worker = await api.worker(2)
    lease_id = await api.lease(lease_worker)
    cut = await api("POST", f"/workers/{lease_worker}/quarantine", {})
    assert (cut.data["state"], cut.data["attestation"]) == ("quarantined", None)
    ended = (await api("GET", "/leases?all=true")).data["leases"]
    assert [(one["lease_id"], one["state"]) for one in ended] == [(lease_id, "fenced")]
    assert (await api("GET", "/leases")).data["leases"] == []
    assert (await api("POST", f"/workers/{lease_worker}/release", {"reason": "looked"})).data["state"] == "registered"
    wrong = await api("POST", f"/workers/{lease_worker}/release", {})
    assert (wrong.status, wrong.code) == (409, "worker.wrong_state")


async def test_removing_a_worker_ends_its_pairing(api: WorkersApi) -> None:
    worker_id = await api.worker()
    state = (await api.harness.gateway.nodes.opened()).state
    record = node_record(id=DeviceId(worker_id), kind=DeviceKind.WORKER, name="worker 1")
    await state.transact(lambda unit: unit.nodes.put(record))
    from fakes.identity_harness import ACTOR, DeviceKey

    await api.harness.gateway.identity.issue(DeviceKind.WORKER, DeviceId(worker_id), DeviceKey().csr(), actor=ACTOR)
    removed = await api("POST", f"/workers/{worker_id}/remove", {"reason": "sold"})
    assert removed.data["state"] == "removed"
    assert state.read(lambda unit: unit.nodes.get(worker_id)).revoked_ms is not None
    # Its name is free for another; its id tells of it for a while.
    assert (await api("GET", "/workers/worker%201")).code == "worker.unknown"
    assert (await api("GET", f"/workers/{worker_id}")).data["state"] == "removed"


async def test_what_is_not_there_or_not_meant_is_told(api: WorkersApi) -> None:
    assert ((gone := await api("GET", "/workers/nobody")).status, gone.code) == (404, "worker.unknown")
    assert (await api("GET", "/leases/01NONE")).code == "lease.unknown"
    assert (await api("GET", "/leases?colour=red")).code == "http.wrong_shape"
    await api.worker(1)
    await api.worker(2)
    same = await api.fleet.ledger.decide(
        api.peers.open_session(numbered(3)).__class__(
            **{**_fields(api.peers.open_session(numbered(3))), "name": "worker 1"}
        )
    )
    assert same.worker is not None
    assert (await api("GET", "/workers/worker%201")).code == "worker.ambiguous_name"


def _fields(command: Any) -> dict[str, Any]:
    return {name: getattr(command, name) for name in command.__struct_fields__}


async def test_only_operators_see_and_change_workers(api: WorkersApi) -> None:
    worker_id = await api.worker()
    agent = await make_token(api.harness, "agent:bot", TokenScope.CALL, TokenScope.OPERATE)
    for method, path in (("GET", "/workers"), ("GET", "/leases"), ("POST", f"/workers/{worker_id}/quarantine")):
        refused = await api(method, path, {} if method == "POST" else b"", token=agent)
        assert (refused.status, refused.code) == (403, "action.denied")
    assert api.fleet.ledger.worker(worker_id).state.value == "available"
