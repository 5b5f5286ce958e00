import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from fakes.fleet_peers import a_lease
from fakes.worker_agent_harness import FakeSession
from palyra.errors import RemoteError
from palyra.fleet.agent.agent import WorkerAgent
from palyra.fleet.agent.session import Session
from palyra.fleet.domain.lease import FencedResult, LeaseRequest
from palyra.fleet.domain.policy import WorkerFleetPolicy
from palyra.fleet.domain.worker import WorkerLifecycleState, WorkerRecord
from palyra.fleet.domain.workspace_scope import ArtifactRef
from palyra.fleet.server import messages
from palyra.fleet.server.messages import Outgoing
from palyra.fleet.server.worker_rpc import WorkerEvents
from palyra.wire.worker.v1 import worker_pb2 as wire

POLICY = WorkerFleetPolicy()
RECORD = WorkerRecord(
    worker_id="w",
    state=WorkerLifecycleState.REGISTERED,
    name="n",
    daemon="d",
    boot_id="b",
    slots=1,
    session=3,
    registered_ms=0,
    since_ms=0,
)


def cases_of(*functions: Callable[..., Any]) -> set[str]:
    """Return the texts that the functions' ``match`` statements name."""
    trees = [ast.parse(textwrap.dedent(inspect.getsource(function))) for function in functions]
    patterns = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.MatchValue)]
    return {str(each.value) for each in patterns if isinstance(each, ast.Constant)}


def test_each_side_has_a_case_for_every_message_of_the_other() -> None:
    """Both ignore or refuse an unknown kind, as one of a newer version: a forgotten case would never show."""
    down = wire.DaemonCommand.DESCRIPTOR.oneofs_by_name["command"].fields
    assert cases_of(Session._on_message, WorkerAgent.on_message) == {field.name for field in down}
    up = {field.name for field in wire.WorkerEvent.DESCRIPTOR.oneofs_by_name["event"].fields}
    assert cases_of(WorkerEvents.on_message) | {"hello"} == up
    assert cases_of(FakeSession.receive) == up, "the fake daemon of the agent's tests"


def on_the_wire(message: Outgoing) -> wire.DaemonCommand:
    """Every field has its place in the message, or this raises."""
    return wire.DaemonCommand(**{message.kind: message.fields})  # type: ignore[arg-type]


def test_an_offer_has_the_lease_and_what_was_asked() -> None:
    artifact = ArtifactRef(path="src/a", digest_sha256="ab" * 32, size=3, executable=True)
    lease = a_lease(inputs=(artifact,))
    ask = LeaseRequest(
        run_id=lease.run_id,
        call_id=lease.call_id,
        principal=lease.principal,
        tool=lease.tool,
        arguments_json=b"{}",
        argument_digest=lease.argument_digest,
        tier="c",
        needs=frozenset(),
        scope=lease.scope,
        idempotent=False,
        timeout_ms=1,
        max_output_bytes=10,
    )
    sent = on_the_wire(messages.offer(lease, ask, lease.granted_ms)).lease
    assert (sent.lease_id, sent.fence, sent.timeout_ms) == (lease.lease_id, 3, 30_000)
    assert tuple(sent.scope.allowed_paths) == lease.scope.allowed_paths and sent.inputs[0].executable
    assert on_the_wire(messages.offer(lease, ask, lease.deadline_ms + 5)).lease.timeout_ms == 1


def test_answers_are_empty_or_have_a_code() -> None:
    assert on_the_wire(messages.answer_settlement("l", None)).settlement_answer.code == ""
    refused = on_the_wire(messages.answer_settlement("l", FencedResult("void"))).settlement_answer
    assert (refused.code, refused.message) == ("lease.fenced", "void")
    remote = messages.answer_attestation(RemoteError("m", remote_code="x.y"), 5)
    assert on_the_wire(remote).attestation_answer.code == "x.y"


def test_the_rest_fits_the_wire() -> None:
    sent = on_the_wire(messages.welcome(RECORD, POLICY, ["l"], b"pem")).welcome
    assert (sent.session, list(sent.void_lease_ids), sent.settle_grace_ms) == (
        3,
        ["l"],
        POLICY.settle_grace_ms,
    )
    for each in (
        messages.challenge("n", POLICY),
        messages.acknowledge_heartbeat(1),
        messages.cancel(a_lease()),
        messages.announce_certificates(b"pem"),
        messages.say_goodbye("c", "m"),
    ):
        assert on_the_wire(each).WhichOneof("command") == each.kind


def test_what_is_asked_of_an_owed_lease_says_which_and_what_to_repeat() -> None:
    lease = a_lease()
    sent = on_the_wire(messages.ask_cleanup(lease)).owed
    assert (sent.lease_id, sent.fence, sent.nonce) == (lease.lease_id, lease.fence, lease.nonce)
