#: tries: works with temporary files and folders
#: task: sum
#: verdict: accepted

import os
import tempfile

with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "numbers"), "w+") as file:
    file.write(input())
    file.seek(0)
    print(sum(map(int, file.read().split())))
