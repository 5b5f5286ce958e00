"""Writes docs/reference/state-machines.md from the tables the program runs by.

With ``--check`` nothing is written; the exit status says whether the page on disk is what would be written.
"""

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from palyra.tools.approval import TRANSITIONS, ApprovalEvent, ApprovalState

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "state-machines.md"
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
        title="Approval",
        source="palyra.tools.approval.TRANSITIONS",
        about="Only `once` is consumed. Every other scope stays approved until it expires or is withdrawn.",
        states=ApprovalState,
        events=ApprovalEvent,
        start=ApprovalState.PENDING,
        transitions=TRANSITIONS,  # type: ignore[arg-type]
    ),
)


def page() -> str:
    lines = ["# State machines", GENERATED, "", "What a table does not have is refused."]
    for machine in MACHINES:
        lines += ["", f"## {machine.title}", "", f"From `{machine.source}`. {machine.about}"]
        lines += ["", "```mermaid", *_diagram(machine), "```", "", *_table(machine)]
    return "\n".join(lines) + "\n"


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


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"stale: {PAGE.name}; run scripts/generate_diagrams.py", file=sys.stderr)
        return 1
    if arguments:
        print("usage: generate_diagrams.py [--check]", file=sys.stderr)
        return 2
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
