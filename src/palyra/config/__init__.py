"""Settings, where they come from, and the directories Palyra lives in."""
