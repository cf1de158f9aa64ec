"""Runners: the code around a program inside of its cell, sent along as text. Nothing here is imported by the judge."""
