"""Which problems are the same, and which are too close to an evaluation set. May import `judge`, `config` and `core`."""
