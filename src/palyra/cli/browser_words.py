"""An action in a few words of a command line: ``click e12``, ``type css=#name anna``, ``wait Welcome``."""

from collections.abc import Sequence
from typing import Any, Final

import click

# What follows the verb: an element, then values under these names.
_FORMS: Final[dict[str, tuple[str, ...]]] = {
    "click": ("target",),
    "double_click": ("target",),
    "hover": ("target",),
    "scroll": ("target",),
    "type": ("target", "text"),
    "press": ("key",),
    "open_tab": ("url",),
    "navigate": ("url",),
    "evaluate": ("expression",),
    "drag": ("target", "to"),
    "back": (),
    "forward": (),
    "reload": (),
    "switch_tab": ("tab",),
    "close_tab": (),
    "reset_state": (),
}
_ELEMENTS: Final = frozenset(("target", "to"))
# A form that takes any number of values after its element.
_LISTS: Final = {"select": "values", "upload": "paths"}
_OTHER: Final = ("wait", "dialog", *_LISTS)


def spoken_element(text: str) -> str | dict[str, str]:
    """A ref, or ``css=``, ``text=`` or ``role=ROLE:NAME``."""
    form, equals, value = text.partition("=")
    if not equals or form not in ("ref", "css", "text", "role"):
        return text
    if form != "role":
        return {form: value}
    role, colon, name = value.partition(":")
    return {"role": role, "name": name} if colon else {"role": role}


def spoken_action(
    words: Sequence[str], *, secret: str | None = None, submit: bool = False, tab: str | None = None
) -> dict[str, Any]:
    verb, *rest = words
    action = _action(verb.replace("-", "_"), rest, secret)
    if secret is not None:
        if verb != "type":
            raise click.UsageError("--secret goes with type.")
        action["secret"] = secret
    if submit:
        action["submit"] = True
    if tab is not None:
        action["tab"] = tab
    return action


def _action(verb: str, rest: list[str], secret: str | None) -> dict[str, Any]:
    if verb == "wait":
        return {"action": "wait_for", "text": " ".join(rest)}
    if verb == "dialog":
        if not rest or rest[0] not in ("accept", "dismiss"):
            raise click.UsageError("A dialog is answered with accept or dismiss, and a text for a prompt.")
        said = {"text": rest[1]} if len(rest) > 1 else {}
        return {"action": "dialog", "accept": rest[0] == "accept", **said}
    if verb in _LISTS:
        if len(rest) < 2:
            raise click.UsageError(f"{verb} needs an element and what to put there.")
        return {"action": verb, "target": spoken_element(rest[0]), _LISTS[verb]: rest[1:]}
    if verb not in _FORMS:
        known = ", ".join(sorted((*_FORMS, *_OTHER)))
        raise click.UsageError(f"{verb!r} is no action; there are {known}.")
    names = _FORMS[verb]
    if verb == "type" and secret is not None:
        names = ("target",)
    if len(rest) != len(names):
        raise click.UsageError(f"{verb} takes {' and '.join(names) or 'nothing more'}.")
    given = {name: spoken_element(word) if name in _ELEMENTS else word for name, word in zip(names, rest, strict=True)}
    return {"action": verb, **given}
