"""What is wrong with a page of the console: it does not fit, cannot be read, or is not used without a pointer."""

from collections.abc import Iterable
from typing import Final

from playwright.sync_api import Page

from fakes.console_harness import PHONE, WIDE, overflow_of, unreached_by_keyboard, violations_of

HEIGHT = 800
Look = tuple[int, str]
EVERY: Final[tuple[Look, ...]] = ((WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark"))
# What axe-core looks at depends on the width or on the scheme, never on both.
READ: Final[tuple[Look, ...]] = ((WIDE, "light"), (PHONE, "dark"))


def look_at(page: Page, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")


def faults_of(
    page: Page, *, seen: Iterable[Look] = EVERY, read: Iterable[Look] = READ, menu: bool = True, walk: bool = True
) -> dict[str, object]:
    """``seen`` in these widths and schemes, ``read`` by axe-core in those. Without ``menu`` what every page has in
    common is left out; without ``walk`` the keyboard is, which a picture that was taken over keeps to itself."""
    found: dict[str, object] = {"unreached": unreached_by_keyboard(page, menu=menu) if walk else []}
    for look in seen:
        look_at(page, *look)
        found[f"overflow {look}"] = max(0, overflow_of(page))
        if look in read:
            found[f"axe {look}"] = violations_of(page, menu=menu)
    look_at(page, WIDE, "light")
    return {name: fault for name, fault in found.items() if fault}
