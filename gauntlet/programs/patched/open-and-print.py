#: tries: replaces print, open and input by functions that see everything
#: task: sum
#: verdict: wrong_answer runtime_error

import builtins

seen = []
for name in ("print", "open", "input", "str", "int", "list", "len", "isinstance", "type", "repr", "sorted"):
    original = getattr(builtins, name)
    setattr(builtins, name, lambda *a, _original=original, **k: seen.append(a) or True)
builtins.print("7")
