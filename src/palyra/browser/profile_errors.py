"""How profiles refuse."""

from palyra.errors import InvalidInput, LimitExceeded, Tampered, Unavailable


class NoSuchProfile(InvalidInput):
    """Also what the profile of another principal looks like."""

    code = "browser.unknown_profile"
    hint = "`palyra browser profiles list` shows the profiles there are"
    http_status = 404


class BadProfile(InvalidInput):
    code = "browser.bad_profile"
    hint = "a name is 1 to 64 visible characters, a colour is #rrggbb, and a private profile is not persistent"


class ProfileExists(InvalidInput):
    code = "browser.profile_exists"
    hint = "choose another name: a principal's profiles have different ones"
    http_status = 409


class TooManyProfiles(LimitExceeded):
    code = "browser.too_many_profiles"
    hint = "delete a profile first"


class NotPersistent(InvalidInput):
    code = "browser.profile_not_persistent"
    hint = "a private profile, or one without persistence, keeps nothing"


class ProfileChanged(InvalidInput):
    """Somebody else saved the profile since it was loaded."""

    code = "browser.profile_changed"
    hint = "the newer state was kept; use a profile in one session at a time"
    http_status = 409


class SnapshotTooLarge(LimitExceeded):
    code = "browser.snapshot_too_large"
    hint = "the state before this session was kept; clear the site data, or use another profile"


class ProfileDamaged(Tampered):
    """What is stored is not what was stored. It is kept aside, and the profile can be begun anew."""

    code = "browser.profile_damaged"
    hint = "the damaged state lies in the folder `aside`; reset the profile or make another, and log in again"


class ProfileRolledBack(Tampered):
    """The stored state is genuine and older than the one that was saved last."""

    code = "browser.profile_rolled_back"
    hint = "somebody put back an older file, which lies in the folder `aside`; reset the profile, and log in again"


class ProfilesFolderRolledBack(Tampered):
    """The profiles are genuine, and not those that were there last: their whole folder is an older copy, or empty."""

    code = "browser.profiles_folder_rolled_back"
    hint = (
        "an older copy of the folder of profiles was put back, or it was emptied; bring back the newest one, or go on "
        "from this one with `palyra browser profiles accept`"
    )


class NothingToAccept(InvalidInput):
    code = "browser.profiles_not_rolled_back"
    hint = "the profiles are the newest that are known: use them"
    http_status = 409


class ProfileKeyMissing(Unavailable):
    code = "browser.profile_key_missing"
    hint = "nothing was changed: bring back the key that sealed the profiles, or move their folder away"


class ProfileKeyBad(InvalidInput):
    code = "browser.profile_key_bad"
    hint = (
        "a key is 32 random bytes in base 64, as `openssl rand -base64 32` prints, in a file with mode 0600 if in one"
    )


class UnknownProfileFormat(Unavailable):
    code = "browser.profile_unknown_format"
    hint = "the profiles were written by a newer Palyra: use that one"


class ProfilesUnusable(Unavailable):
    code = "browser.profiles_unusable"
    hint = "check the folder of profiles: it has to be the daemon's alone, on a disk with space, used by one daemon"
