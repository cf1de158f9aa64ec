#: tries: sleeps for as long as it is left alone
#: task: sum
#: verdict: time_limit

import time

time.sleep(1000)
