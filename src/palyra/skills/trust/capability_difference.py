"""The requests of a version beyond the one in use, and beyond the settings: the heart of a review."""

from collections.abc import Iterator
from typing import Final

import msgspec

from palyra.canonical import digest_of
from palyra.skills.package.capabilities import Capabilities
from palyra.skills.package.manifest import SkillManifest, SkillTool

# Every skill requests to run. No line of its request says so.
RUN_LINE: Final = "run"


class CapabilityDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Each line names one thing. ``compared_with`` is the version in use, or empty.

    A line of ``changed_tools`` names what changed: a model reads each word of a tool.
    """

    compared_with: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    added_tools: tuple[str, ...] = ()
    removed_tools: tuple[str, ...] = ()
    changed_tools: tuple[str, ...] = ()


class GetsLess(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the request, or ``RUN_LINE``, that the settings do not grant whole.

    ``gets`` is the part that is granted, ``setting`` the name of the setting.
    """

    asked: str
    gets: str
    setting: str


def capability_difference(new: SkillManifest, in_use: SkillManifest | None) -> CapabilityDifference:
    wanted = dict.fromkeys(capability_lines(new.capabilities))
    had = dict.fromkeys(capability_lines(in_use.capabilities)) if in_use is not None else {}
    tools = {tool.id: tool for tool in new.tools}
    old_tools = {tool.id: tool for tool in in_use.tools} if in_use is not None else {}
    return CapabilityDifference(
        compared_with=in_use.version if in_use is not None else "",
        added=tuple(line for line in wanted if line not in had),
        removed=tuple(line for line in had if line not in wanted),
        unchanged=tuple(line for line in wanted if line in had),
        added_tools=tuple(tool for tool in tools if tool not in old_tools),
        removed_tools=tuple(tool for tool in old_tools if tool not in tools),
        changed_tools=tuple(
            f"{name}: another {', '.join(changed)}"
            for name, tool in tools.items()
            if name in old_tools and (changed := _changed(tool, old_tools[name]))
        ),
    )


def _changed(new: SkillTool, old: SkillTool) -> list[str]:
    now, before = msgspec.to_builtins(new), msgspec.to_builtins(old)
    return [name.replace("_", " ") for name, value in now.items() if digest_of(value) != digest_of(before[name])]


def capability_lines(asked: Capabilities) -> Iterator[str]:
    """Write the request in words, one line for each thing. Equal things have equal lines."""
    for host in asked.http_egress_allowlist:
        yield host_line(host)
    for secret in asked.secrets:
        if secret not in asked.reveal_secrets:
            yield f"use the secret {secret} without seeing it"
    for secret in asked.reveal_secrets:
        yield f"use the secret {secret} and see its value"
    for header in asked.secret_headers:
        yield f"attach secrets to the header {header}"
    for root in asked.filesystem.read_roots:
        yield f"read its storage under {root}"
    for root in asked.filesystem.write_roots:
        yield f"write its storage under {root}"
    for channel in asked.channels:
        yield f"send messages to the channel {channel}"
    for ability in asked.device:
        yield f"use the device's {ability}"
    for ability in asked.node:
        yield f"use a node's {ability}"
    for group in asked.wasi:
        yield f"link WASI {group.value}"
    for name, value in msgspec.structs.asdict(asked.quotas).items():
        if value is not None:
            yield quota_line(name, value)


def host_line(host: str) -> str:
    return f"send requests to {host}"


def quota_line(name: str, value: int) -> str:
    return f"have the quota {name} = {value}"
