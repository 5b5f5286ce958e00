"""One question to Cedar and its answer, read as it comes instead of through objects that are made anew for each."""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from palyra.policy.cedar_library import cedarpy

NO_POLICIES: Final = cedarpy.PolicySet.from_str("")


class Diagnostics(msgspec.Struct, frozen=True):
    """The policies that made the decision, by the names Cedar gave them; and what went wrong."""

    reason: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


class Reply(msgspec.Struct, frozen=True):
    decision: Literal["Allow", "Deny", "NoDecision"]
    diagnostics: Diagnostics = Diagnostics()


_read: Final = msgspec.json.Decoder(Reply).decode


def parse_entities(document: bytes, schema: Any = None) -> Any:
    """Raises ``ValueError`` for a document that is none, or that the schema refuses."""
    return _handle(cedarpy.Entities.from_json_str(document.decode(), schema))


def _handle(entities: Any) -> Any:
    return entities if _direct is None else getattr(entities, _INNER)


def authorize(
    principal: dict[str, str],
    action: dict[str, str],
    resource: dict[str, str],
    context: bytes,
    policies: Any,
    entities: Any,
    schema: Any = None,
) -> Reply:
    request = {"principal": principal, "action": action, "resource": resource, "context": context.decode()}
    if _direct is None:
        return _reply_of(cedarpy.is_authorized(request, policies, entities, schema))
    return _read(_direct([request], policies, entities, schema, False)[0])


def _reply_of(result: Any) -> Reply:
    diagnostics = result.diagnostics
    return Reply(result.decision.value, Diagnostics(tuple(diagnostics.reasons), tuple(map(str, diagnostics.errors))))


# cedarpy's wrapper parses the answer with the standard library and builds four objects of it: a third of a question.
# What it wraps is not its promise, so that it is used where it is as we know it, and else the wrapper.
_INNER: Final = "_inner"


def _known_extension() -> Callable[..., list[str]] | None:
    """The function behind ``cedarpy.is_authorized``, if it answers a question as that does."""
    request = {"principal": 'U::"u"', "action": 'Action::"a"', "resource": 'U::"r"', "context": '{"n": 1}'}
    policies = cedarpy.PolicySet.from_str("permit (principal, action, resource) when { context.n == 1 };")
    nobody = cedarpy.Entities.from_json_str("[]")
    try:
        function: Callable[..., list[str]] = cedarpy._internal.is_authorized_batch
        (answer,) = function([request], policies, getattr(nobody, _INNER), None, False)
        return function if _read(answer) == _reply_of(cedarpy.is_authorized(request, policies, nobody)) else None
    except (AttributeError, TypeError, ValueError, msgspec.MsgspecError):
        return None


_direct: Final = _known_extension()
NOBODY: Final = parse_entities(b"[]")
