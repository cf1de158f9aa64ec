"""An algorithm in which failures pull less than successes."""
