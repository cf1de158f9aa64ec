#: tries: computes in a child process and reads a pipe
#: task: sum
#: verdict: accepted

import os

numbers = list(map(int, input().split()))
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, str(sum(numbers)).encode())
    os._exit(0)
os.wait()
print(os.read(read, 100).decode())
