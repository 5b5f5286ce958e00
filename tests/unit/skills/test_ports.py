from fakes.skill_harness import SkillHarness
from palyra.store.port import Store


def test_the_journals_store_is_a_store_for_skills(harness: SkillHarness) -> None:
    store: Store = harness.store
    assert store.read("SELECT COUNT(*) FROM skill_versions") == [(0,)]
