"""Other people's servers behind Palyra: started in a sandbox, their tools pinned as they were reviewed."""
