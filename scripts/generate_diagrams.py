"""Writes docs/reference/state-machines.md from the tables of the program, and their list in the architecture page.

With ``--check`` nothing is written. The exit status says whether the pages on disk are fresh.
"""

import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from palyra.devicelink.pairing import proof
from palyra.egress.protocols import http1_body, http1_proxy, http1_response, socks5, tls_hello
from palyra.executors.mcp_upstream import pinning
from palyra.fleet.domain import lease
from palyra.fleet.domain import worker as worker_lifecycle
from palyra.fleet.egress import leases
from palyra.identity import device
from palyra.identity import records as identity_records
from palyra.nodes.agent import link_state, request_state
from palyra.nodes.domain import records
from palyra.pipeline.domain.approval import TRANSITIONS, ApprovalEvent, ApprovalState
from palyra.skills.registry import lifecycle

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "state-machines.md"
# The list of them stands here too, between two marks.
OVERVIEW = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- machines -->\n", "<!-- /machines -->"
GENERATED = "<!-- Written by scripts/generate_diagrams.py; change the table in the program, then run it again. -->"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    source: str
    about: str
    states: type[StrEnum]
    events: type[StrEnum]
    start: StrEnum
    transitions: Mapping[tuple[StrEnum, StrEnum], StrEnum]

    def ends(self) -> list[StrEnum]:
        leaving = {state for state, _ in self.transitions}
        return [state for state in self.states if state not in leaving]


MACHINES = (
    Machine(
        title="Definition of a server's tool",
        source="palyra.executors.mcp_upstream.pinning.TRANSITIONS",
        about="A definition other than the approved one is what a server tells; approving takes what it told last.",
        states=pinning.PinState,
        events=pinning.PinEvent,
        start=pinning.PinState.PENDING,
        transitions=pinning.TRANSITIONS,
    ),
    Machine(
        title="Approval",
        source="palyra.pipeline.domain.approval.TRANSITIONS",
        about="Only `once` is consumed. Every other scope stays approved until it expires or is withdrawn.",
        states=ApprovalState,
        events=ApprovalEvent,
        start=ApprovalState.PENDING,
        transitions=TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Version of a skill",
        source="palyra.skills.registry.lifecycle.TRANSITIONS",
        about="Only `approved` runs; a skill has at most one version there. `removed` and `failed` may begin again.",
        states=lifecycle.SkillState,
        events=lifecycle.SkillEvent,
        start=lifecycle.SkillState.INGESTED,
        transitions=lifecycle.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Device",
        source="palyra.identity.device.TRANSITIONS",
        about="Nothing leads back: a machine that lost its standing is paired again, under another id.",
        states=device.DeviceState,
        events=device.DeviceEvent,
        start=device.DeviceState.ACTIVE,
        transitions=device.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Certificate authority",
        source="palyra.identity.records.TRANSITIONS",
        about="One is `current`; at most one is `outgoing`.",
        states=identity_records.AuthorityState,
        events=identity_records.AuthorityEvent,
        start=identity_records.AuthorityState.CURRENT,
        transitions=identity_records.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Request to pair",
        source="palyra.nodes.domain.records.PAIRING_TRANSITIONS",
        about="`complete` is the device fetching its certificate. Every ending is for good: a new code begins again.",
        states=records.PairingState,
        events=records.PairingEvent,
        start=records.PairingState.PENDING_APPROVAL,
        transitions=records.PAIRING_TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Proof of a pairing code",
        source="palyra.devicelink.pairing.proof.TRANSITIONS",
        about="Both sides have it: each speaks once and hears once, and is over then, whatever it heard.",
        states=proof.ProofState,
        events=proof.ProofEvent,
        start=proof.ProofState.FRESH,
        transitions=proof.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Request to a device",
        source="palyra.nodes.domain.records.REQUEST_TRANSITIONS",
        about="What has ended stays ended: a result that comes later is refused.",
        states=records.RequestState,
        events=records.RequestEvent,
        start=records.RequestState.QUEUED,
        transitions=records.REQUEST_TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Connection of a device",
        source="palyra.nodes.agent.link_state.TRANSITIONS",
        about="On the device. A new certificate is switched to while the old connection stands.",
        states=link_state.LinkState,
        events=link_state.LinkEvent,
        start=link_state.LinkState.OFFLINE,
        transitions=link_state.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Request at a device",
        source="palyra.nodes.agent.request_state.TRANSITIONS",
        about="On the device. It begins in `asking` where the person there is asked, else in `running`.",
        states=request_state.WorkState,
        events=request_state.WorkEvent,
        start=request_state.WorkState.AWAITING_PERSON,
        transitions=request_state.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Worker",
        source="palyra.fleet.domain.worker.TRANSITIONS",
        about="Only `available` and `busy` get leases. Out of `quarantined` lead a release and then an attestation.",
        states=worker_lifecycle.WorkerLifecycleState,
        events=worker_lifecycle.WorkerTransition,
        start=worker_lifecycle.WorkerLifecycleState.REGISTERED,
        transitions=worker_lifecycle.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Lease of a worker",
        source="palyra.fleet.domain.lease.TRANSITIONS",
        about="Only `settled` has a result; after `fenced` and `expired` none counts.",
        states=lease.LeaseState,
        events=lease.LeaseEvent,
        start=lease.LeaseState.OPEN,
        transitions=lease.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="Lease at its worker's egress proxy",
        source="palyra.fleet.egress.leases.TRANSITIONS",
        about="The daemon grants and ends, or time does. In `ending` a door lets nothing through and sees who comes.",
        states=leases.AccessState,
        events=leases.AccessEvent,
        start=leases.AccessState.GRANTED,
        transitions=leases.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="SOCKS5 server",
        source="palyra.egress.protocols.socks5.TRANSITIONS",
        about="`rejected` is the client's fault, `refused` the judge's verdict.",
        states=socks5.Socks5State,
        events=socks5.Socks5Event,
        start=socks5.Socks5State.GREETING,
        transitions=socks5.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="HTTP proxy",
        source="palyra.egress.protocols.http1_proxy.TRANSITIONS",
        about="A second request is not read before the first is answered.",
        states=http1_proxy.ProxyState,
        events=http1_proxy.ProxyEvent,
        start=http1_proxy.ProxyState.HEAD,
        transitions=http1_proxy.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="HTTP answer",
        source="palyra.egress.protocols.http1_response.TRANSITIONS",
        about="A connection is used again only from `ended`.",
        states=http1_response.ResponseState,
        events=http1_response.ResponseEvent,
        start=http1_response.ResponseState.HEAD,
        transitions=http1_response.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="HTTP body",
        source="palyra.egress.protocols.http1_body.TRANSITIONS",
        about="A body with a length begins in `counted`, one without in `until_close`, one that is none in `finished`.",
        states=http1_body.BodyState,
        events=http1_body.BodyEvent,
        start=http1_body.BodyState.CHUNK_SIZE,
        transitions=http1_body.TRANSITIONS,  # type: ignore[arg-type]
    ),
    Machine(
        title="TLS ClientHello",
        source="palyra.egress.protocols.tls_hello.TRANSITIONS",
        about="Only read, never answered.",
        states=tls_hello.HelloState,
        events=tls_hello.HelloEvent,
        start=tls_hello.HelloState.READING,
        transitions=tls_hello.TRANSITIONS,  # type: ignore[arg-type]
    ),
)


def page() -> str:
    lines = ["# State machines", GENERATED, "", "What a table does not have is refused."]
    for machine in MACHINES:
        lines += ["", f"## {machine.title}", "", f"From `{machine.source}`. {machine.about}"]
        lines += ["", "```mermaid", *_diagram(machine), "```", "", *_table(machine)]
    return "\n".join(lines) + "\n"


def overview(text: str) -> str:
    """Render the page on the architecture, with each machine, its table and its states between the marks."""
    before, _, rest = text.partition(BEGIN)
    rows = ["| machine | states | table |", "|---|---|---|"]
    for machine in MACHINES:
        anchor = re.sub(r"[^a-z0-9 -]", "", machine.title.lower()).replace(" ", "-")
        states = ", ".join(state.value for state in machine.states)
        rows.append(f"| [{machine.title}](../reference/state-machines.md#{anchor}) | {states} | `{machine.source}` |")
    return f"{before}{BEGIN}" + "\n".join(rows) + f"\n{END}{rest.partition(END)[2]}"


def _diagram(machine: Machine) -> list[str]:
    arrows = [
        f"    {before.value} --> {after.value}: {event.value}" for (before, event), after in machine.transitions.items()
    ]
    ends = [f"    {state.value} --> [*]" for state in machine.ends()]
    return ["stateDiagram-v2", f"    [*] --> {machine.start.value}", *arrows, *ends]


def _table(machine: Machine) -> list[str]:
    """Every state against every event; a dash is a refusal."""
    heads = [event.value for event in machine.events]
    rows = ["| state | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for state in machine.states:
        cells = [
            machine.transitions[state, event].value if (state, event) in machine.transitions else "–"
            for event in machine.events
        ]
        rows.append(f"| {state.value} | " + " | ".join(cells) + " |")
    return rows


def written() -> dict[Path, str]:
    return {PAGE: page(), OVERVIEW: overview(OVERVIEW.read_text(encoding="utf-8"))}


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        stale = [path.name for path, text in written().items() if path.read_text(encoding="utf-8") != text]
        if not stale:
            return 0
        print(f"stale: {', '.join(stale)}; run scripts/generate_diagrams.py", file=sys.stderr)
        return 1
    if arguments:
        print("usage: generate_diagrams.py [--check]", file=sys.stderr)
        return 2
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
