"""Settings that were called otherwise in earlier releases. An old name is an error that gives the new one."""

RENAMED = {
    "algorithm.masked_rows_vote": "algorithm.include_masked_in_baseline",
    "algorithm.max_refills": "algorithm.max_resamples",
    "curriculum": "length_schedule",
    "health.sampler_gap_limit": "health.log_prob_mismatch_limit",
    "publish.probe": "publish.sync_check",
}
