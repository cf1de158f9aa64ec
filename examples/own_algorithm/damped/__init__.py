"""An algorithm in which failures pull less than successes."""

import autoclave.config  # noqa: F401  first, for it looks for our settings, which need it whole
