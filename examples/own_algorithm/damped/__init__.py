"""An algorithm in which failures change the policy less than successes."""
