#: tries: prints bytes that are no UTF-8 around the answer
#: task: answer
#: verdict: wrong_answer

import os

os.write(1, b"\xffyes\xfe\xc0\x80\n" if int(input()) % 2 == 0 else b"\xed\xa0\x80no\n")
