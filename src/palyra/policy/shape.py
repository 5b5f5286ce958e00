"""The shape of a context: which attributes it has and of which types. A schema that leaves the values free judges a
request by its shape alone, so that one verdict holds for every request of that shape."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from palyra.policy.entities import EntityRef, cedar_value

# Names, and a form for each: the type of a plain value, the entity's type for a reference, these two for sets of texts.
Shape: TypeAlias = tuple[tuple[str, ...], tuple[Any, ...]]
_NO_ITEMS: Final = list
_TEXTS: Final = set

# Attributes that policies look at, and of which there are few values: truths, and the doors that requests come through.
Settled: TypeAlias = tuple[tuple[str, Any], ...]
_CHANNEL: Final = "Channel"

_LONGS: Final = range(-(2**63), 2**63)
# What is longer or of more items is part of every question, whether or not a policy looks at it.
MAX_IGNORED_CHARS: Final = 256
MAX_IGNORED_ITEMS: Final = 64
# Neither an address nor a number nor a date: of all types of Cedar's a text alone can be this, and an entity's id.
ANY_TEXT: Final = "~ any text ~"


def asked_of(context: Mapping[str, Any], reads: frozenset[str] | None) -> tuple[dict[str, Any], Settled, Shape | None]:
    """What of the context a question carries, as Cedar's JSON wants it; beside it those of its attributes that have few
    values; and the shape of the whole.

    Small values that no policy looks at, such as the name of the run, are left out: two contexts of one shape that
    agree in the rest get the same answer from these policies. A context with values of other types than requests
    usually have is carried whole, and has no shape.
    """
    asked: dict[str, Any] = {}
    settled: list[tuple[str, Any]] = []
    forms: list[Any] = []
    for name, value in context.items():
        form: Any = type(value)
        if form is str:
            kept = len(value) > MAX_IGNORED_CHARS or not value.isascii()
        elif form is bool:
            kept = False
        elif form is int:
            kept = False
            if value not in _LONGS:
                return cedar_value(context), (), None
        elif form is EntityRef:
            form, kept = value.type, len(value.id) > MAX_IGNORED_CHARS or not value.id.isascii()
        elif form is list:
            form, kept = _TEXTS if value else _NO_ITEMS, len(value) > MAX_IGNORED_ITEMS
            for item in value:
                if type(item) is not str:
                    return cedar_value(context), (), None
                kept = kept or len(item) > MAX_IGNORED_CHARS or not item.isascii()
        else:
            return cedar_value(context), (), None
        forms.append(form)
        if kept or reads is None:
            asked[name] = cedar_value(value) if type(value) is EntityRef else value
        elif name in reads:
            if form is bool or form == _CHANNEL:
                settled.append((name, value))
            else:
                asked[name] = cedar_value(value) if type(value) is EntityRef else value
    return asked, tuple(settled), (tuple(context), tuple(forms))


def sample_of(shape: Shape) -> dict[str, Any]:
    """A context of this shape, of values that are admitted only where every value is."""
    return {name: _sample(form) for name, form in zip(*shape, strict=True)}


def _sample(form: Any) -> Any:
    if form is str:
        return ANY_TEXT
    if form is int:
        return _LONGS[0]
    if form is bool:
        return True
    if form is _NO_ITEMS:
        return []
    if form is _TEXTS:
        return [ANY_TEXT]
    return cedar_value(EntityRef(form, ANY_TEXT))
