"""The tour through one call's life: decided, attested, approved, confined, budgeted, denied."""

import json

from palyra.cli.tour_scene import AGENT, TourScene, TourSurprised
from palyra.client.protocol import NeedsApprovalError
from palyra.errors import PalyraError
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.tools.attestation import verify_attestation


def plain_call(scene: TourScene) -> None:
    steps = scene.steps
    made = scene.call("echo", {"text": "hello"})
    steps.expect(made.result == {"text": "hello"} and made.decision is not None, "echo returns its text")
    by = ", ".join(made.decision.policies if made.decision else ())
    steps.note("an agent calls echo", "allowed", f"policy {by}")
    envelope = json.dumps(made.attestation).encode()
    verifiers = (Ed25519Verifier.from_pem_file(scene.state / "signing.pub"),)
    verify_attestation(envelope, verifiers)
    steps.note("its attestation is verified offline", "allowed", "signature and execution digest agree")
    flipped = bytearray(envelope)
    flipped[flipped.index(b'"payload": "') + 20] ^= 1
    try:
        verify_attestation(bytes(flipped), verifiers)
    except PalyraError as error:
        steps.note("the same attestation with one bit flipped", "refused", error.code)
    else:
        raise TourSurprised("a changed attestation was accepted")


def approval(scene: TourScene) -> None:
    steps, write = scene.steps, {"path": "notes.txt", "content": "written once\n"}
    approval_id = _needs_approval(scene, write, "an agent wants to write a file")
    code = scene.refusal(lambda: scene.client.approve(approval_id, decided_as=AGENT))
    steps.note("the agent approves its own request", "refused", code)
    scene.client.approve(approval_id)
    steps.note("a person approves exactly this call, once", "allowed", "bound to principal, tool, arguments, policies")
    _needs_approval(scene, {**write, "content": "something else\n"}, "the agent changes one argument")
    made = scene.call("fs.write", write)
    steps.expect((scene.workspace / "notes.txt").read_text() == "written once\n", "the file is written")
    steps.note("the agent makes the approved call", "allowed", f"approval {made.approval_id} is used up")
    _needs_approval(scene, write, "and makes it again")


def _needs_approval(scene: TourScene, write: dict[str, str], what: str) -> str:
    try:
        scene.call("fs.write", write)
    except NeedsApprovalError as error:
        scene.steps.note(what, "waits", "needs a person's approval (filesystem_write is sensitive)")
        scene.steps.expect(error.approval_id is not None, "the answer names the approval")
        return error.approval_id or ""
    raise TourSurprised("a sensitive call ran without approval")


def confinement(scene: TourScene) -> None:
    code = scene.refusal(lambda: scene.call("fs.read", {"path": "../../signing.key"}))
    scene.steps.note("the agent reads outside its workspace", "refused", code)
    doubled = '{"text":"a","text":"b"}'
    code = scene.refusal(lambda: scene.client.call("echo", arguments_json=doubled, principal=AGENT))
    scene.steps.note("arguments with a duplicate key", "refused", code)


def budget(scene: TourScene) -> None:
    run_id = scene.client.start_run({"calls": 2}, principal=AGENT).run_id
    for _ in range(2):
        scene.call("echo", {"text": "x"}, run_id=run_id)
    code = scene.refusal(lambda: scene.call("echo", {"text": "x"}, run_id=run_id))
    scene.steps.note("a third call in a run with a budget of two", "refused", code)


def denial(scene: TourScene) -> None:
    code = scene.refusal(lambda: scene.client.call("echo", {"text": "x"}, principal=AGENT, channel="carrier-pigeon"))
    scene.steps.note("a call through a door that policy does not know", "refused", code)
