"""Weights on their way from the trainer to samplers: a memory that both use, or other routes where they are apart.

`publisher` is the driver's side, `receiving` the samplers', `workers/trainer/publishing.py` the trainer's.
`verification`, `sync_check` and `rollout_check` check that samplers compute with what was published. Imported by name,
so that a process loads only what it needs.
"""
