#: tries: prints the answer on the wrong stream
#: task: sum
#: verdict: wrong_answer

import sys

print(sum(map(int, input().split())), file=sys.stderr)
