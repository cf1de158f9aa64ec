"""Actions on SQLite files. Needs `apsw`, which brings an SQLite that tells every row before it changes."""
