"""palyra-workerd: the machine that runs leased calls."""
