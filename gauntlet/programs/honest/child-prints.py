#: tries: has a child print the answer
#: task: sum
#: verdict: accepted

import subprocess
import sys

code = "print(sum(map(int, input().split())))"
sys.exit(subprocess.run([sys.executable, "-S", "-c", code]).returncode)
