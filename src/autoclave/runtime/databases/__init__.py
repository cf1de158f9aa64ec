"""Actions on databases. Drivers and parsers are imported where they are needed: a session on files alone needs none."""
