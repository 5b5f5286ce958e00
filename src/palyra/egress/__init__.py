"""Where tools may go on the network, judged in one place."""
