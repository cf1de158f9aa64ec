"""Store of problems, tokens and jobs: `Store`, its records, and its forms in SQLite and PostgreSQL."""
