"""Keys and chords, by the names that pages know, as Chromium's commands need them."""

from typing import Any, Final

import msgspec

from palyra.browser.domain.page_errors import BadKey

_MODIFIERS: Final = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
_OTHER_NAMES: Final = {"Ctrl": "Control", "Cmd": "Meta", "Command": "Meta", "Option": "Alt", "Esc": "Escape"} | {
    "Return": "Enter",
    "Space": " ",
    "Del": "Delete",
    "Up": "ArrowUp",
    "Down": "ArrowDown",
    "Left": "ArrowLeft",
    "Right": "ArrowRight",
}
# The key's name, its place on the keyboard, the number that old pages read, and the text that it writes.
_NAMED: Final[dict[str, tuple[str, int, str]]] = {
    "Enter": ("Enter", 13, "\r"),
    "Tab": ("Tab", 9, ""),
    "Escape": ("Escape", 27, ""),
    "Backspace": ("Backspace", 8, ""),
    "Delete": ("Delete", 46, ""),
    "Insert": ("Insert", 45, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
    "PageUp": ("PageUp", 33, ""),
    "PageDown": ("PageDown", 34, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ContextMenu": ("ContextMenu", 93, ""),
    "Alt": ("AltLeft", 18, ""),
    "Control": ("ControlLeft", 17, ""),
    "Meta": ("MetaLeft", 91, ""),
    "Shift": ("ShiftLeft", 16, ""),
    " ": ("Space", 32, " "),
    **{f"F{number}": (f"F{number}", 111 + number, "") for number in range(1, 13)},
}
# Characters of a keyboard with its American layout that are neither letters nor digits: place, number, with shift.
_SIGNS: Final[dict[str, tuple[str, int, str]]] = {
    "`": ("Backquote", 192, "~"),
    "-": ("Minus", 189, "_"),
    "=": ("Equal", 187, "+"),
    "[": ("BracketLeft", 219, "{"),
    "]": ("BracketRight", 221, "}"),
    "\\": ("Backslash", 220, "|"),
    ";": ("Semicolon", 186, ":"),
    "'": ("Quote", 222, '"'),
    ",": ("Comma", 188, "<"),
    ".": ("Period", 190, ">"),
    "/": ("Slash", 191, "?"),
}
_SHIFTED_DIGITS: Final = ")!@#$%^&*("


class Stroke(msgspec.Struct, frozen=True, kw_only=True):
    """One key with the modifiers that are held down with it."""

    key: str
    code: str
    number: int
    text: str
    modifiers: int

    def events(self) -> tuple[dict[str, Any], dict[str, Any]]:
        both = {
            "key": self.key,
            "code": self.code,
            "windowsVirtualKeyCode": self.number,
            "modifiers": self.modifiers,
        }
        # With Control, Alt or Meta a key writes nothing: it is a command.
        text = "" if self.modifiers & ~_MODIFIERS["Shift"] else self.text
        down: dict[str, Any] = {"type": "keyDown" if text else "rawKeyDown", **both}
        if text:
            down |= {"text": text, "unmodifiedText": text}
        return down, {"type": "keyUp", **both}


def chord(text: str) -> tuple[Stroke, ...]:
    """Split ``Control+Shift+ArrowLeft`` into strokes, each modifier first. They are released in reverse order."""
    *held, last = _words(text)
    strokes: list[Stroke] = []
    modifiers = 0
    for word in held:
        modifier = _OTHER_NAMES.get(word, word)
        if modifier not in _MODIFIERS:
            raise BadKey(f"{word[:40]!r} is no modifier", key=word[:40])
        modifiers |= _MODIFIERS[modifier]
        strokes.append(_stroke(modifier, modifiers))
    return (*strokes, _stroke(_OTHER_NAMES.get(last, last), modifiers))


def modifier_mask(names: tuple[str, ...]) -> int:
    mask = 0
    for name in names:
        modifier = _OTHER_NAMES.get(name, name)
        if modifier not in _MODIFIERS:
            raise BadKey(f"{name[:40]!r} is no modifier", key=name[:40])
        mask |= _MODIFIERS[modifier]
    return mask


def _words(text: str) -> list[str]:
    if not text:
        raise BadKey("no key was named")
    # The plus sign itself is a key too: alone, or as the last of a chord.
    if text == "+" or text.endswith("++"):
        return [*(word for word in text[:-1].split("+") if word), "+"]
    words = text.split("+")
    if not all(words):
        raise BadKey(f"{text[:40]!r} names no key", key=text[:40])
    return words


def _stroke(key: str, modifiers: int) -> Stroke:
    if key in _NAMED:
        code, number, text = _NAMED[key]
        own = _MODIFIERS.get(key, 0)
        return Stroke(key=key, code=code, number=number, text=text, modifiers=modifiers | own)
    if len(key) != 1 or not key.isprintable():
        raise BadKey(f"{key[:40]!r} names no key", key=key[:40])
    shifted = bool(modifiers & _MODIFIERS["Shift"])
    if key.isascii() and key.isalpha():
        written = key.upper() if shifted else key
        return Stroke(key=written, code=f"Key{key.upper()}", number=ord(key.upper()), text=written, modifiers=modifiers)
    if key.isascii() and key.isdigit():
        written = _SHIFTED_DIGITS[int(key)] if shifted else key
        return Stroke(key=written, code=f"Digit{key}", number=ord(key), text=written, modifiers=modifiers)
    if key in _SHIFTED_DIGITS:
        at = _SHIFTED_DIGITS.index(key)
        return Stroke(key=key, code=f"Digit{at}", number=ord(str(at)), text=key, modifiers=modifiers)
    for plain, (code, number, above) in _SIGNS.items():
        if key in (plain, above):
            written = above if shifted else key
            return Stroke(key=written, code=code, number=number, text=written, modifiers=modifiers)
    return Stroke(key=key, code="", number=0, text=key, modifiers=modifiers)
