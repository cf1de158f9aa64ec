"""Earlier names of settings and of their choices. An old name is an error that gives the new one."""

RENAMED = {
    "algorithm.masked_rows_vote": "algorithm.include_masked_in_baseline",
    "algorithm.max_refills": "algorithm.max_resamples",
    "curriculum": "length_schedule",
    "health.sampler_gap_limit": "health.log_prob_mismatch_limit",
    "publish.probe": "publish.sync_check",
}

RENAMED_CHOICES = {"problems.name": {"curriculum": "synthetic"}}

RENAMED_COMMANDS = {"pairs": "compensations"}
"""Commands of `autoclave act`."""
RENAMED_IN_CONNECTIONS = {"holds": "queue_up_to", "hold_s": "queue_s (services) or transaction_timeout_s (databases)"}
RENAMED_IN_CATALOGUES = {"look": "read_back", "looks": "read_backs"}
"""Fields in the catalogues of services."""
