"""Sealed cells in containers: one unprivileged container for each zygote, one program at a time.

The container's main process is the zygote, so a test is a fork there as well. Podman or docker starts it with flags
that `launch.py` lists; the zygote then gives up root and loads its own seccomp program on top of the engine's
(`guest/contained.py`). It is reached through a Unix socket in a private folder, which is shown in the container until
the zygote has connected; then the folder is emptied. The engine must run on this kernel, not in a virtual machine.

The image holds names only: empty folders and files to mount on, and symbolic links. Interpreter, standard library and
shared libraries are the host's own, bound read-only one by one, so nothing is downloaded and nothing becomes outdated.

When the judging process ends, its end of the socket closes, the zygote ends, and with the main process the container.
The next judging process removes leftovers when it starts (`engine.py`).
"""
