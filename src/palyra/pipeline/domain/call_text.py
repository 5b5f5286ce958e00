"""A call as it is shown to the person who decides on it: the same fields at a terminal, in the console and over MCP.

Every value is spelled so that all its characters are visible and no two values look alike. Nothing is cut.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from palyra.pipeline.domain.approval import Approval, BoundFile
from palyra.visible_text import render_fields, spell, spell_json

NOTHING_TOUCHED = "nothing outside itself"


class CallField(msgspec.Struct, frozen=True):
    """One label of ours with the lines of its value."""

    label: str
    lines: tuple[str, ...]


def describe_approval(approval: Approval) -> tuple[CallField, ...]:
    """Return the fields of the call that waits, without those that are empty."""
    binding = approval.binding
    fields = (
        CallField("who asks", (spell(binding.principal),)),
        CallField("session", (spell(approval.session),) if approval.session else ()),
        CallField("tool", (spell(binding.tool),)),
        CallField("arguments", _list_arguments(approval)),
        CallField("digest", (spell(binding.argument_digest),)),
        CallField("runs", (approval.runs,) if approval.runs else ()),
        CallField("program and files", tuple(map(_describe_file, binding.files))),
        CallField("would touch", list_accessed(approval.touches)),
        CallField("workspace", (spell(binding.workspace),) if binding.workspace else ()),
    )
    return tuple(each for each in fields if each.lines)


def _list_arguments(approval: Approval) -> tuple[str, ...]:
    if approval.dropped_bytes:
        return (f"no longer kept ({approval.dropped_bytes} bytes)",)
    return tuple(spell_json(approval.arguments).split("\n"))


def _describe_file(file: BoundFile) -> str:
    leads = "" if file.real == file.path else f" is {spell(file.real)}" if file.real else " is missing"
    bound = f"sha256 {file.sha256}" if file.sha256 else f"stamp {file.stamp}" if file.stamp else ""
    kind = "program" if file.program else "file"
    return f"{kind} {spell(file.path)}{leads}" + (f", {file.bytes} bytes, {bound}" if bound else "")


def list_accessed(touches: Any) -> tuple[str, ...]:
    """Write one resource a line, with its kind."""
    if touches is None:
        return ()
    if not isinstance(touches, Mapping):
        return tuple(spell_json(touches).split("\n"))
    lines = [
        f"{spell(str(kind))}: {spell(item if isinstance(item, str) else spell_json(item))}"
        for kind, items in touches.items()
        for item in (items if isinstance(items, list | tuple) else [items])
    ]
    return tuple(lines) or (NOTHING_TOUCHED,)


def render_call(fields: tuple[CallField, ...]) -> str:
    """Write the fields as text. A value's further lines are indented, so that none poses as a label."""
    return render_fields((each.label, "\n".join(each.lines)) for each in fields)
