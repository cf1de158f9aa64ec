#: tries: provokes errors whose message might quote the test
#: task: token
#: verdict: runtime_error

import sys

raise ValueError(sys._getframe(0).f_back)
