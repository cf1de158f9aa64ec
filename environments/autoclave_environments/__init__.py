"""Reference environments: tasks of several turns and their problems, by the interfaces that plugins have."""
