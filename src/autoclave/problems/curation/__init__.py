"""Which problems are one, and which are too close to an evaluation set. May import `judge`, `config`, `core`."""
