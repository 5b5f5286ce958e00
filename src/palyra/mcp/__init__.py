"""The Model Context Protocol: Palyra's tools for any agent, and other people's servers behind Palyra."""
