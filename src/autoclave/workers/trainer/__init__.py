"""The models of a run as workers: actor and critic, which learn, and frozen reference and reward model (torch).

Imported by name, not by `autoclave.workers`, so that a worker process loads only the libraries that its worker needs.
"""
