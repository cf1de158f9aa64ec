#: tries: unpacks a few bytes into gigabytes
#: task: sum
#: verdict: memory_limit runtime_error time_limit
#: harms: takes a few gigabytes

import zlib

packer = zlib.compressobj(9)
packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
kept = []
for _ in range(64):
    kept.append(zlib.decompress(packed))
