from fakes.skill_scene import SkillHouse
from palyra.store.port import Store


def test_the_journals_store_is_a_store_for_skills(house: SkillHouse) -> None:
    store: Store = house.store
    assert store.read("SELECT COUNT(*) FROM skill_versions") == [(0,)]
