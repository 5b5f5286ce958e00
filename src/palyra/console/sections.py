"""Every section of the console, in the order of its menu. A new page is one more line here."""

from palyra.console.page import Section
from palyra.console.pages import (
    access,
    approvals,
    browser,
    calls,
    devices,
    doctor,
    egress,
    journal,
    overview,
    policy,
    skills,
    vault,
)

SECTIONS: tuple[Section, ...] = (
    overview.SECTION,
    approvals.SECTION,
    calls.SECTION,
    journal.SECTION,
    policy.SECTION,
    skills.SECTION,
    devices.SECTION,
    browser.SECTION,
    vault.SECTION,
    egress.SECTION,
    access.SECTION,
    doctor.SECTION,
)
