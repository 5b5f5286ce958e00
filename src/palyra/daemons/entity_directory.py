"""Which principals, tools and channels the settings put in which sets: the directory that policies speak about."""

from palyra.config.settings import Settings
from palyra.policy.entities import EntityDirectory


def directory_of(settings: Settings) -> EntityDirectory:
    access, tools = settings.access, settings.tools
    return EntityDirectory.from_lists(
        principals=access.principals,
        operators=access.operators,
        groups=access.groups,
        tools=tools.allowed,
        preapproved=tools.preapproved,
        channels=access.channels,
    )
