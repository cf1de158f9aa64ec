#: tries: ends with exit code 0 before it prints anything
#: task: sum
#: verdict: wrong_answer

import sys

sys.exit(0)
