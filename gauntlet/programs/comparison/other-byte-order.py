#: tries: prints the answer in UTF-16
#: task: answer
#: verdict: wrong_answer

import os

os.write(1, ("yes" if int(input()) % 2 == 0 else "no").encode("utf-16"))
