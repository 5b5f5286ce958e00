"""The settings of a node host, and the commands that its owner configures.

A parameter is always one whole word of argv, and no shell reads it. A value that begins with a dash could be an option,
so it needs a pattern that the owner wrote.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from palyra.config.setting_types import describe
from palyra.devicelink.limits import MAX_DESCRIPTION_CHARS, MAX_DEVICE_NAME_CHARS
from palyra.nodes import limits
from palyra.nodes.agent.messages import BadCapabilityInput, BadCommandPlan, Offer

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_PLACE: Final = re.compile(r"\{([a-z][a-z0-9_]{0,30})\}")
_PARAMETER: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
# One line of text. Neither a shell nor a terminal reads it.
_PLAIN: Final = re.compile(r"(?!-)[^\x00-\x1f\x7f]+")
PREFIX: Final = "command."


class ParameterPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``pattern`` is a regular expression for the whole value; without one, a line that does not begin with a dash."""

    description: Annotated[str, Meta(max_length=256)] = ""
    pattern: Annotated[str, Meta(max_length=512)] = ""
    max_chars: Annotated[int, Meta(ge=1, le=limits.MAX_PARAMETER_CHARS)] = limits.DEFAULT_PARAMETER_CHARS


class CommandPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``argv`` is the program and its words; a word ``{name}`` stands for the parameter of that name."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1, max_length=limits.MAX_ARGV)]
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION_CHARS)] = ""
    parameters: Annotated[dict[str, ParameterPlan], Meta(max_length=limits.MAX_PARAMETERS)] = {}
    # Whether the person at this machine must consent to each use.
    ask: bool = True
    # Whether two runs have the same effect as one.
    idempotent: bool = False
    # The absolute path of its working directory. Empty means a folder of its own in the state directory.
    workspace: str = ""
    read_only: bool = False
    # Whether it may be a script or an interpreter.
    interpreter: bool = False

    def check(self, name: str) -> None:
        """Raise ``BadCommandPlan`` for a plan that can never work, or that is ambiguous."""
        if not _NAME.fullmatch(name):
            raise BadCommandPlan(f"{name[:64]!r} is not a name for a command: lower-case letters, digits, - and _")
        if self.workspace and not self.workspace.startswith("/"):
            raise BadCommandPlan(f"the workspace of {name} is not an absolute path")
        used = [match[1] for word in self.argv for match in [_PLACE.fullmatch(word)] if match]
        if _PLACE.fullmatch(self.argv[0]) or not self.argv[0]:
            raise BadCommandPlan(f"the program of {name} must not depend on a parameter")
        for word in self.argv:
            if "\0" in word:
                raise BadCommandPlan(f"a word of {name} holds a NUL")
            if not _PLACE.fullmatch(word) and _PLACE.search(word):
                raise BadCommandPlan(
                    f"in {name} a parameter is a part of the word {word[:64]!r}: make it a word of its own"
                )
        if set(used) != set(self.parameters):
            odd = sorted(set(used) ^ set(self.parameters))[0]
            raise BadCommandPlan(f"the parameter {odd[:64]} of {name} is not both described and used")
        for parameter, plan in self.parameters.items():
            if not _PARAMETER.fullmatch(parameter):
                raise BadCommandPlan(f"{parameter[:64]!r} is not a name for a parameter")
            try:
                re.compile(plan.pattern)
            except re.error as error:
                raise BadCommandPlan(
                    f"the pattern of {name}.{parameter} is not a regular expression: {error}"
                ) from None

    def offer(self, name: str) -> Offer:
        described = {
            parameter: {
                "type": "string",
                "minLength": 1,
                "maxLength": plan.max_chars,
                **({"description": plan.description} if plan.description else {}),
            }
            for parameter, plan in self.parameters.items()
        }
        return Offer(
            name=PREFIX + name,
            description=self.description or f"Runs {self.argv[0]} on the device, as its owner set it up.",
            input_schema={
                "type": "object",
                "properties": described,
                "required": sorted(described),
                "additionalProperties": False,
            },
            local_mediation=self.ask,
            idempotent=self.idempotent,
        )

    def words(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Build the argv of one request. Raise ``BadCapabilityInput`` unless the input is exactly the parameters."""
        if set(given) != set(self.parameters):
            raise BadCapabilityInput(f"this command takes exactly: {', '.join(sorted(self.parameters)) or 'nothing'}")
        values = {name: _value(name, plan, given[name]) for name, plan in self.parameters.items()}
        return tuple(values[match[1]] if (match := _PLACE.fullmatch(word)) else word for word in self.argv)


def check_commands(commands: Mapping[str, CommandPlan]) -> None:
    if len(commands) > limits.MAX_COMMANDS:
        raise BadCommandPlan(f"a device names at most {limits.MAX_COMMANDS} commands")
    for name, plan in commands.items():
        plan.check(name)


def _value(name: str, plan: ParameterPlan, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise BadCapabilityInput(f"{name} must be text")
    if len(value) > plan.max_chars:
        raise BadCapabilityInput(f"{name} has more than {plan.max_chars} characters")
    pattern = re.compile(plan.pattern) if plan.pattern else _PLAIN
    if "\0" in value or not pattern.fullmatch(value):
        raise BadCapabilityInput(f"{name} is not what this device takes for it")
    return value


Word = Annotated[str, Meta(min_length=1, max_length=limits.MAX_PARAMETER_CHARS)]
Argv = Annotated[tuple[Word, ...], Meta(max_length=limits.MAX_ARGV)]
Glob = Annotated[str, Meta(min_length=1, max_length=64)]


class NodeHostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[
        str,
        Meta(max_length=MAX_DEVICE_NAME_CHARS),
        describe("What this device calls itself; empty means its host name."),
    ] = ""
    ask: Annotated[
        tuple[Glob, ...], describe("Capabilities that the person at this device must allow each time, as globs.")
    ] = ("open_url",)
    open_url_command: Annotated[
        Argv, describe("Program and words that a web address is added to; empty means xdg-open, or open on macOS.")
    ] = ()
    notify_command: Annotated[
        Argv,
        describe("Program and words that title and text are added to; empty means notify-send or the terminal."),
    ] = ()
    commands: Annotated[
        dict[str, CommandPlan], describe("Commands that the daemon may have run here, by name, each in the sandbox.")
    ] = {}
