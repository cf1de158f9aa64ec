#: tries: fills the disk
#: task: sum
#: verdict: runtime_error
#: harms: writes a few gigabytes

with open("/tmp/" + MARK, "wb") as file:
    for _ in range(4000):
        file.write(bytes(1 << 20))
