"""Actions on key-value databases that speak the protocol of Redis. Needs `redis`."""
