"""The run folder, written and read: configuration, metrics, rollouts, timelines and evaluations. No torch."""
