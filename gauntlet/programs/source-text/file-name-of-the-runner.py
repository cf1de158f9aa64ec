#: tries: compiles code under the file names of the runner, to appear in its place in traces
#: task: sum
#: verdict: runtime_error

for name in ("<runner>", "<guest init>", "program.py", "/etc/passwd"):
    code = compile("\n" * 999_999 + "def f(): raise ValueError", name, "exec")
    exec(code)
f()
