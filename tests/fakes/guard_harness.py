"""A workspace on disk, the guards over it, and a file system made of a dictionary."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palyra.sandbox.domain.process_run import parse_command
from palyra.sandbox.domain.profile import EgressEnforcementMode, SandboxProfile
from palyra.sandbox.guards.checks import Checked, GuardHost, build_guard_host, check_before_spawn
from palyra.sandbox.guards.executables import Kind, Seen


class DictFiles:
    """Paths to link targets; a target of None is a file, and a key that ends in / a directory."""

    def __init__(self, entries: Mapping[str, str | None]) -> None:
        self._links = {path: target for path, target in entries.items() if target is not None}
        self._files = {path for path, target in entries.items() if target is None and not path.endswith("/")}
        named = [path.rstrip("/") for path in entries]
        self._directories = {"/"} | {path.rstrip("/") for path in entries if path.endswith("/")}
        for path in named:
            parts = path.split("/")[1:-1]
            self._directories |= {"/" + "/".join(parts[: count + 1]) for count in range(len(parts))}

    def look(self, path: str) -> Seen:
        if path in self._links:
            return Seen(Kind.LINK, self._links[path])
        if path in self._files:
            return Seen(Kind.FILE)
        return Seen(Kind.DIRECTORY if path in self._directories else Kind.MISSING)


class GuardHarness:
    """Runs every check on real files, as a call would."""

    def __init__(self, root: Path, **profile: Any) -> None:
        self.root = root
        self.profile = SandboxProfile(workspace_root=str(root), **{"egress": EgressEnforcementMode.NONE, **profile})
        self.host: GuardHost = build_guard_host(self.profile)

    def check(self, command: str, *args: str, **more: Any) -> Checked:
        parsed = parse_command({"command": command, "args": list(args), **more})
        return check_before_spawn(self.profile, parsed, self.host)
