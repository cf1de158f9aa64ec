#: tries: reads descriptor 0 and writes descriptor 1
#: task: sum
#: verdict: accepted

import os

content = b""
while part := os.read(0, 3):
    content += part
os.write(1, b"%d\n" % sum(map(int, content.split())))
