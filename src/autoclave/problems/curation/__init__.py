"""Curate candidates of public sets into a training set: stages keep or drop them, with reasons."""
