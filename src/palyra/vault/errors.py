"""How the vault refuses."""

from palyra.errors import Denied, InvalidInput, LimitExceeded, NeedsApproval, Tampered, Unavailable
from palyra.vault.limits import MAX_SECRETS, MAX_VALUE_BYTES


class VaultTampered(Tampered):
    """What is stored is not what was stored: a changed bit, a record from elsewhere, or one from an older copy."""

    code = "vault.tampered"
    hint = "somebody changed the database; compare with `palyra journal verify` and a backup, then put the secret again"


class UnknownFormat(Unavailable):
    code = "vault.unknown_format"
    hint = "the record was written by a newer Palyra: use that one"


class NoSuchSecret(InvalidInput):
    code = "vault.unknown_secret"
    hint = "`palyra vault list` shows the secrets there are"
    http_status = 404


class NoSuchVersion(InvalidInput):
    code = "vault.unknown_version"
    hint = "`palyra vault list` shows the versions that are kept"
    http_status = 404


class BadValue(InvalidInput):
    code = "vault.bad_value"
    hint = "a value is text of at least one character"


class ValueTooLarge(LimitExceeded):
    code = "vault.value_too_large"
    hint = f"a value has at most {MAX_VALUE_BYTES} bytes of UTF-8"
    http_status = 413


class TooManySecrets(LimitExceeded):
    code = "vault.too_many_secrets"
    hint = f"delete some: a vault holds {MAX_SECRETS}"


class KeyMissing(Unavailable):
    """The place that should have the key-encryption key does not have it, or has another."""

    code = "vault.key_missing"
    hint = "bring back the key that the message names; without it nobody can read what it sealed"


class KeyUnsafe(Denied):
    code = "vault.key_unsafe"
    hint = "keep the key in a file of your own with mode 0600, outside the state directory and without links to it"


class KeyMalformed(InvalidInput):
    code = "vault.key_malformed"
    hint = "a key is 32 random bytes in base 64, such as `openssl rand -base64 32` prints"


class NewKeyNeeded(InvalidInput):
    code = "vault.new_key_needed"
    hint = "give the new key first and the old one after it, then rotate again"


class PassphraseNeeded(Unavailable):
    code = "vault.passphrase_needed"
    hint = "set vault.passphrase_file or vault.passphrase_fd, or use the command at a terminal while no daemon runs"


class PassphraseWeak(InvalidInput):
    code = "vault.passphrase_weak"
    hint = "use several random words"


class KeyringUnavailable(Unavailable):
    code = "vault.keyring_unavailable"
    hint = "install palyra[keyring] and unlock a desktop keyring, or choose another vault.key_source"


class UseDenied(Denied):
    code = "vault.use_denied"
    hint = "a policy of yours may permit vault.use for this principal and secret"


class ScopeDenied(Denied):
    """The secret belongs to somebody else; no policy changes that."""

    code = "vault.scope_denied"
    hint = "put the secret in a scope that the one who needs it may use"


class UseNeedsApproval(NeedsApproval):
    code = "vault.use_needs_approval"
    hint = "have a person approve a call that names this secret, or permit vault.use by a policy"


class NotConfirmed(Denied):
    code = "vault.not_confirmed"
    hint = "a secret is shown only to a person at a terminal who types its name"
