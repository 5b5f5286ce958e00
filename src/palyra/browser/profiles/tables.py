"""What palyrad heard last of the profiles, in its own database: there the browser daemon's folder does not reach."""

from palyra.browser.domain.session_api import ProfilesHead
from palyra.store.port import Store, Transaction


def read_last_head(store: Store) -> ProfilesHead:
    """Without a mark where nothing was heard yet."""
    rows = store.read("SELECT generation, mark FROM browser_profiles_heard")
    return ProfilesHead(generation=rows[0][0], mark=rows[0][1]) if rows else ProfilesHead()


def put_last_head(tx: Transaction, head: ProfilesHead) -> None:
    """What was heard late does not take the place of something newer: numbers only grow, also when an older copy was
    accepted."""
    tx.execute(
        """INSERT INTO browser_profiles_heard VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE
        SET generation = excluded.generation, mark = excluded.mark WHERE excluded.generation > generation""",
        (head.generation, head.mark),
    )


# The table of what was last heard of profiles.
#
# In a module of their own, because every store is opened with them and few use them.

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS browser_profiles_heard (
        one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL, mark TEXT NOT NULL) STRICT""",
)
