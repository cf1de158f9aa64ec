#: tries: uses the binary buffers of the streams
#: task: sum
#: verdict: accepted

import sys

sys.stdout.buffer.write(b"%d\n" % sum(map(int, sys.stdin.buffer.readline().split())))
