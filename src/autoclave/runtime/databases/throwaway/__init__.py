"""Servers of our own, apart from the databases of actions and from any network, on which things are tried."""
