"""The built-in capabilities of every node host, and the checks of inputs and outputs."""

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from palyra.devicelink.limits import MAX_INPUT_BYTES
from palyra.nodes import limits
from palyra.nodes.agent.messages import BadCapabilityInput, Dispatch, Offer, OutputTooLarge
from palyra.nodes.agent.settings import CommandPlan
from palyra.strict_json import NotStrictJson, parse_strict

HEALTH: Final = "system.health"
ECHO: Final = "echo"
OPEN_URL: Final = "open_url"
NOTIFY: Final = "notify"

MAX_ECHO_CHARS: Final = 4_096
MAX_TITLE_CHARS: Final = 64
# The size of a command's result without its output.
_AROUND_OUTPUT: Final = 512
# The encoding at most doubles a command's output.
_MOST_SWELL: Final = 2

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_NOTHING: Final = {"type": "object", "properties": {}, "additionalProperties": False}


def _text(name: str, most: int, *, also: tuple[str, int] | None = None) -> dict[str, Any]:
    properties = {name: {"type": "string", "minLength": 1, "maxLength": most}}
    if also is not None:
        properties[also[0]] = {"type": "string", "maxLength": also[1]}
    return {"type": "object", "properties": properties, "required": [name], "additionalProperties": False}


BUILT_IN: Final = (
    Offer(
        name=HEALTH,
        description="How the device is: uptime, load, memory and free disk space.",
        input_schema=_NOTHING,
        idempotent=True,
    ),
    Offer(
        name=ECHO,
        description="Answers with the same text: shows that the way to the device works.",
        input_schema=_text("text", MAX_ECHO_CHARS),
        idempotent=True,
    ),
    Offer(
        name=OPEN_URL,
        description="Opens a web address (http or https) on the device's desktop.",
        input_schema=_text("url", limits.MAX_URL_CHARS),
    ),
    Offer(
        name=NOTIFY,
        description="Shows a short message to the person at the device.",
        input_schema=_text("text", limits.MAX_NOTIFICATION_CHARS, also=("title", MAX_TITLE_CHARS)),
    ),
)


def list_offers(commands: Mapping[str, CommandPlan], ask: tuple[str, ...]) -> dict[str, Offer]:
    """List the offers of this device, by name. ``ask`` are globs of capabilities that need the person's consent."""
    found = [*BUILT_IN, *(plan.offer(name) for name, plan in commands.items())]
    return {
        offer.name: msgspec.structs.replace(
            offer, local_mediation=offer.local_mediation or any(fnmatchcase(offer.name, glob) for glob in ask)
        )
        for offer in found
    }


def read_input(dispatch: Dispatch) -> dict[str, Any]:
    """Read the input of a request. The daemon has checked it, but this device does not rely on that."""
    if len(dispatch.input_json) > MAX_INPUT_BYTES:
        raise BadCapabilityInput(f"the input is larger than {MAX_INPUT_BYTES} bytes")
    try:
        given = parse_strict(dispatch.input_json or b"{}")
    except NotStrictJson as error:
        raise BadCapabilityInput(f"the input is not one JSON object: {error.message}") from error
    if not isinstance(given, dict):
        raise BadCapabilityInput("the input is not a JSON object")
    return given


def read_text(given: Mapping[str, Any], name: str, most: int, *, optional: str = "") -> str:
    """Return the text argument. Refuse any other argument besides ``optional``."""
    if set(given) - {name, optional}:
        raise BadCapabilityInput(f"this takes {name} and nothing else")
    value = given.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise BadCapabilityInput(f"{name} must be text of 1 to {most} characters")
    return value


def read_web_address(given: Mapping[str, Any]) -> str:
    """Check for an http or https address without user or password. Other ones could start another program."""
    url = read_text(given, "url", limits.MAX_URL_CHARS)
    try:
        parts = urlsplit(url)
        named = parts.hostname
        _ = parts.port
    except ValueError:
        named = None
    if (
        named is None
        or not _VISIBLE.fullmatch(url)
        or not url.lower().startswith(("http://", "https://"))
        or "@" in parts.netloc
        or "\\" in url
    ):
        raise BadCapabilityInput("the address is not a plain http or https one")
    return url


def compute_result_limit(dispatch: Dispatch, welcome_bytes: int) -> int:
    """Compute the largest result that the request, the daemon and this device accept."""
    return min(each for each in (dispatch.max_result_bytes, welcome_bytes, limits.MAX_RESULT_BYTES) if each > 0)


def compute_output_limit(most: int) -> int:
    """Compute how much output always fits into a result of ``most`` bytes."""
    return max(0, most - _AROUND_OUTPUT) // _MOST_SWELL


def encode_output(value: Any, most: int) -> bytes:
    raw = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(raw) > most:
        raise OutputTooLarge(f"the result has {len(raw)} bytes; at most {most} are taken")
    return raw


def format_question(dispatch: Dispatch) -> tuple[str, str]:
    """Return the question for the person: the capability, and the beginning of its input."""
    given = dispatch.input_json.decode("utf-8", "replace")
    shown = given[: limits.MAX_SHOWN_INPUT_CHARS]
    return dispatch.capability, shown + ("… (more)" if len(shown) < len(given) else "")
