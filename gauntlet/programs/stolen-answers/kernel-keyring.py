#: tries: reads and writes the keyrings of the kernel, which namespaces do not keep apart
#: task: recall
#: verdict: wrong_answer runtime_error

import ctypes

text = input()
libc = ctypes.CDLL(None, use_errno=True)
for ring in (-1, -2, -3, -4, -5):
    if text:
        libc.syscall(248, b"user", b"gauntlet", text.encode(), len(text), ring)  # add_key
    else:
        key = libc.syscall(250, 10, ring, b"user", b"gauntlet", 0)  # keyctl search
        buffer = ctypes.create_string_buffer(100)
        if key > 0 and libc.syscall(250, 11, key, buffer, 100) > 0:
            text = buffer.value.decode()
print(text)
