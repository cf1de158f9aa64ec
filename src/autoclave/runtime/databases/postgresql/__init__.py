"""Actions on PostgreSQL databases. Needs `psycopg`, and `pglast` for PostgreSQL's own grammar."""
