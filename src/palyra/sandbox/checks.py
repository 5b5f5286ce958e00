"""Everything that is checked before a program is started, in one fixed order, each refusal with a kind of its own.

Enabled; shape (``parse_command``); executable allowed; interpreters, programs that run programs, environment; workspace
and working directory; paths in arguments; hosts in arguments, and whether allowed ones can be served. What passes gets
exactly the words that were asked for.
"""

import msgspec

from palyra.sandbox.command import ProcessCommand, encode_word
from palyra.sandbox.environment_guard import refuse_environment
from palyra.sandbox.executables import (
    SYSTEM_ROOTS,
    ExecutableLookup,
    ResolvedExecutable,
    find_executable,
    refuse_unlisted_executable,
)
from palyra.sandbox.interpreter_guard import refuse_interpreter
from palyra.sandbox.network_door import named_by_arguments, refuse_unserved
from palyra.sandbox.outcome import InvalidCommand, SandboxDisabled
from palyra.sandbox.path_walk import PathLook, join
from palyra.sandbox.preflight import check_preflight
from palyra.sandbox.profile import EgressEnforcementMode, SandboxProfile
from palyra.sandbox.workspace_scope import resolve_cwd, validate_argument_workspace_scope


class GuardHost(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks may ask of the machine, and whether processes may be run on it at all."""

    executables: ExecutableLookup
    files: PathLook
    enabled: bool = True


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """``argv`` is what was asked for, byte by byte. ``env`` is the caller's part, to be laid over the sandbox's own.

    ``executable`` was judged at its ``found`` path: start that one, whatever ``argv[0]`` says.
    """

    argv: tuple[bytes, ...]
    cwd: str
    env: tuple[tuple[str, str], ...]
    executable: ResolvedExecutable


def check_before_spawn(
    profile: SandboxProfile, command: ProcessCommand, host: GuardHost, *, served: bool = False
) -> Checked:
    """``served`` says that somebody would let the allowed hosts, and no other, through to an isolated program."""
    if not host.enabled:
        raise SandboxDisabled("running processes is switched off here")
    if not command.command or any("\0" in word for word in command.argv):
        raise InvalidCommand("the command is empty or has a NUL character", argument="command")
    readable = (*SYSTEM_ROOTS, *profile.tool_roots)
    # A relative command is looked up where it would run; whether it may run there is judged in its turn.
    asked_cwd = join(profile.workspace_root, command.cwd or ".")
    found = find_executable(host.executables, command.command, asked_cwd)
    refuse_unlisted_executable(found, profile.allowed_executables, readable)
    if not profile.allow_interpreters:
        refuse_interpreter(found, command)
    refuse_environment(command.env, allow_interpreters=profile.allow_interpreters)
    cwd = resolve_cwd(command.cwd, profile.workspace_root, host.files)
    validate_argument_workspace_scope(command, profile.workspace_root, cwd, host.files, readable)
    if profile.egress is not EgressEnforcementMode.NONE:
        check_preflight(command, named_by_arguments(profile))
    refuse_unserved(profile, served=served)
    return Checked(argv=tuple(map(encode_word, command.argv)), cwd=cwd, env=command.env, executable=found)
