"""Programs that try to pass a check by other means than the right answer."""
# ruff: noqa: E501  the programs are easier to compare when each stays on one line

from __future__ import annotations

import pytest

CHECK = "EXPECTED = ['a secret', 7]\ndef check(candidate):\n    assert candidate(1, lambda x: x) == EXPECTED\n    assert candidate(2, lambda x: x)[1] == 8\n"
FRAME = "import os, json\ndef frame(kind, *message):\n    m = kind + json.dumps(message).encode()\n    os.write(3, len(m).to_bytes(4, 'big') + m)\n"
EQUAL = "class A{}:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    __hash__ = None\n    def __getitem__(self, i): return self\n    def __abs__(self): return 0\n    def __lt__(self, other): return True\n"

ATTACKS = {
    "equal to all": EQUAL.format("") + "def f(x, g): return A()",
    "equal list": EQUAL.format("(list)") + "def f(x, g): return A()",
    "equal number in a list": EQUAL.format("(float)") + "def f(x, g): return ['a secret', A()]",
    "class of another": "class A:\n    __class__ = list\n    def __eq__(self, other): return True\ndef f(x, g): return A()",
    "exit": "import os\ndef f(x, g): os._exit(0)",
    "exit at once": "import sys\nsys.exit(0)",
    "exit while loading": "import os\nos._exit(0)",
    "end marker": FRAME + "def f(x, g):\n    frame(b'E', 'passed', '')\n    while True: pass",
    "end marker and exit": FRAME + "def f(x, g):\n    frame(b'E', 'passed', '')\n    os._exit(0)",
    "end marker while loading": FRAME + "frame(b'E', 'passed', '')\nframe(b'A', ['value'], [[0, {}]], [])\ndef f(x, g): pass",
    "answer to nothing": FRAME + "def f(x, g):\n    for _ in range(9): frame(b'A', ['value'], [7], [])\n    return 7",
    "two answers": FRAME + "frame(b'A', ['value'], [[{'handle': ['mine', 0, 'function']}, {'dict': ['EXPECTED', 7]}]], [])\nimport time\ntime.sleep(0.1)",
    "names that were not asked for": FRAME + "frame(b'A', ['value'], [[{'handle': ['mine', 0, 'function']}, {'dict': ['check', {'handle': ['mine', 0, 'function']}, 'abs', 0]}]], [])\nimport os\nos._exit(0)",
    "malformed": FRAME + "def f(x, g):\n    frame(b'A', 1, 2)\n    while True: pass",
    "unknown tag": FRAME + "def f(x, g):\n    frame(b'A', ['value'], [{'pickle': 'gASV'}], [])\n    while True: pass",
    "no frame": "import os\ndef f(x, g):\n    os.write(3, bytes(4))\n    while True: pass",
    "huge frame": "import os\ndef f(x, g):\n    os.write(3, b'\\xff\\xff\\xff\\xffA')\n    while True: os.write(3, bytes(60_000))",
    "deep frame": "import os\ndef f(x, g):\n    m = b'A' + b'[' * 10**6\n    os.write(3, len(m).to_bytes(4, 'big') + m)\n    while True: pass",
    "closed channel": "import os\ndef f(x, g):\n    os.close(3)\n    while True: pass",
    "asking for the namespace": FRAME + "def f(x, g):\n    frame(b'Q', ['get', 0, '__globals__'], [], [])\n    return eval(os.read(3, 999)[5:])",
    "asking for the function's globals": "def f(x, g): return g.__globals__['EXPECTED']",
    "asking for the function's code": "def f(x, g): return g.__code__.co_consts",
    "asking for a field": "def f(x, g): return g.func_globals",
    "calling what was not exported": FRAME + "def f(x, g):\n    frame(b'C', ['call', 99, []], [1], [])\n    while True: pass",
    "calling a negative number": FRAME + "def f(x, g):\n    frame(b'C', ['call', -1, []], [1], [])\n    while True: pass",
    "frames of the caller": "import sys, gc\ndef f(x, g):\n    frame, seen = sys._getframe(), []\n    while frame:\n        seen += frame.f_locals.values()\n        frame = frame.f_back\n    return next((v for v in seen + gc.get_objects() if type(v) is list and v == ['a ' + 'secret', 7]), 0)",
    "text in memory": "import gc\ndef f(x, g): return [next((v for v in gc.get_objects() if isinstance(v, str) and v.startswith('a ' + 'secret')), ''), 7]",
    "patched builtins": "import builtins\nbuiltins.AssertionError = builtins.isinstance = builtins.type = builtins.abs = lambda *a: True\ndef f(x, g): return 0",
    "patched json": "import json\njson.dumps = json.JSONEncoder.encode = lambda *a, **k: '[[\"value\"],[7],[]]'\ndef f(x, g): return 0",
    "redefining the check": "def check(c): pass\nEXPECTED = 0\ncandidate = None\ndef f(x, g): return 0",
    "patched runner": "import sys\nfor name in ('Encoder', 'Peer', 'Decoder'):\n    sys._getframe(1).f_globals.get(name)\ndef f(x, g):\n    sys._getframe(1).f_globals['_channel'] = 1\n    return 0",
    "claiming to be an assertion": "def f(x, g): raise AssertionError",
    "claiming to be a stop": "def f(x, g): raise StopIteration",
    "claiming to be the exit": "class SystemExit(Exception): pass\ndef f(x, g): raise SystemExit(0)",
    "base exception": "class E(BaseException): pass\ndef f(x, g): raise E",
    "exit by name": FRAME + "def f(x, g):\n    frame(b'A', ['raise', 'SystemExit', '- SystemExit 1'], [0], [])\n    while True: pass",
    "keyboard by name": FRAME + "def f(x, g):\n    frame(b'A', ['raise', 'KeyboardInterrupt', ''], [], [])\n    while True: pass",
    "raising nonsense": FRAME + "def f(x, g):\n    frame(b'A', ['raise', [], {}], [], [])\n    while True: pass",
    "endless callback": "def f(x, g):\n    while True: g(1)",
    "endless nesting": "def f(x, g): return g(f(x, g))",
    "many parts": FRAME + "def f(x, g):\n    v = [[]]\n    for i in range(60): v = [v, {'again': 60 - i}]\n    frame(b'A', ['value'], [v], [])\n    while True: pass",
    "parts that double": "def f(x, g):\n    v = [1]\n    for _ in range(60): v = [v, v]\n    return v",
    "colliding keys": "def f(x, g): return {i * (2**61 - 1): 0 for i in range(1, 20_000)}",
    "colliding set": "def f(x, g): return {i * (2**61 - 1) for i in range(1, 20_000)}",
    "endless generator": "def f(x, g):\n    while True: yield 7",
    "second answer differs": "n = 0\ndef f(x, g):\n    global n\n    n += 1\n    return ['a secret', 7] if n == 1 else [0, 9]",
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_a_check_is_not_rewarded(judged, check_problem, attack: str):
    problem = check_problem(CHECK, invocation="check(candidate)", time_limit_s=0.5)
    verdict = judged(problem, ATTACKS[attack])
    assert (verdict.reward, verdict.fault) == (0.0, None)
    assert "secret" not in verdict.message


@pytest.mark.parametrize(
    "program",
    [
        "def f(x):\n    frame(b'A', ['states'], [[], []], [])\n    while True: pass",
        "import sys\nframe = sys._getframe()\nwhile type(frame.f_locals.get('self')).__name__ != 'Candidate': frame = frame.f_back\npeer = frame.f_locals['self']\ndef f(x):\n    peer.copies_back = True\n    x.clear()\n    return []",
    ],
)
def test_a_program_cannot_change_arguments_that_are_copies(checked, program: str):
    """Else it empties both what it was given and what the check makes of it afterwards."""
    source = "given = [3, 1, 2]\nassert candidate(given) == sorted(given)"
    assert checked(source, "def f(x): return sorted(x)").status == "accepted"
    verdict = checked(source, FRAME + program)
    assert (verdict.status, verdict.message) == ("runtime_error", "it answered the check with malformed data")


@pytest.mark.parametrize("head", ["5", "[]", "{}", "None", "['value', 'states']", "['other']"])
def test_an_answer_without_a_proper_head_ends_the_check(checked, head: str):
    source = "try:\n    candidate(1)\nexcept Exception:\n    pass\nassert candidate(2) == 3"
    values = "[]" if "value" in head else "[3]"
    program = FRAME + f"def f(x):\n    frame(b'A', {head}, {values}, [])\n    while True: pass"
    verdict = checked(source, program)
    assert (verdict.status, verdict.message) == ("runtime_error", "it answered the check with malformed data")


@pytest.mark.parametrize("stop", ["StopIteration", "StopAsyncIteration"])
def test_a_program_cannot_end_a_loop_over_cases(checked, stop: str):
    source = "cases = [(1, 1), (2, 4)]\nassert all(map(lambda case: candidate(case[0]) == case[1], cases))"
    assert checked(source, "def f(x): return x * x").status == "accepted"
    assert checked(source, f"def f(x): raise {stop}").status == "runtime_error"


NODE = "class Node:\n    def __init__(self, val): self.val = val\n    def __eq__(self, other): return isinstance(other, Node) and self.val == other.val\n    def equals(self, other): return self.val == other.val\n    @property\n    def double(self): return 2 * self.val\ndef same(a, b): return a.val == b.val\n"


@pytest.mark.parametrize(
    "program",
    [
        "def f():\n    n = Node(0)\n    n.equals = lambda other: True\n    return n",
        "def f():\n    n = Node(0)\n    n.__dict__['double'] = 6\n    n.val = 3.5\n    return n",
        "def f():\n    n = Node(0)\n    n.__dict__['__class__'] = 3\n    return n",
        "class Node:\n    def __init__(self, val): self.val = val\n    def __eq__(self, other): return True\n    def equals(self, other): return True\n    double = 6\ndef f(): return Node(0)",
        "def same(a, b): return True\ndef f(): return Node(0)",
        "class A:\n    def __eq__(self, other): return True\ndef f(): return Node(A())",
        "class A(float):\n    def __eq__(self, other): return True\n    def __rmul__(self, other): return 6\ndef f(): return Node(A())",
        "class A(Node):\n    def equals(self, other): return True\ndef f(): return A(0)",
    ],
)
def test_an_object_of_a_known_class_brings_fields_and_no_behaviour(checked, program: str):
    source = "n = candidate()\nassert n.equals(Node(3)) and n == Node(3) and n.double == 6 and same(n, Node(3))"
    assert checked(source, "def f(): return Node(3)", preamble=NODE).status == "accepted"
    assert checked(source, program, preamble=NODE).reward == 0.0


@pytest.mark.parametrize(
    "use",
    [
        *("h == 3", "h != h", "not h", "h < 3", "3 in h", "h[0] == 3", "len(h) == 3", "abs(h - 3) < 1", "int(h) == 3", "float(h) == 3"),
        *("h in [3]", "[h] == [3]", "{h: 1} == {3: 1}", "str(h) == '3'", "format(h) == '3'", "list(h) == [3]", "round(h) == 3", "isinstance(h, int)"),
        *("issubclass(type(h), int)", "h.__class__ is int", "bool(h) is False", "hash(h) == hash(3)", "dict(h) == {}", "not set(h)"),
        *("__import__('math').isclose(h, 3)", "sorted(h) == [3]", "__import__('copy').deepcopy(h) == 3", "h + 1 == 4", "3 == h", "divmod(h, 1) == (3, 0)"),
    ],
)  # fmt: skip
def test_no_operation_on_an_object_of_the_program_runs_its_methods(checked, use: str):
    names = [
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "contains",
        "getitem",
        "len",
        "sub",
        "rsub",
        "abs",
        "int",
        "float",
        "str",
        "format",
        "iter",
        "round",
        "instancecheck",
        "class_getitem",
        "bool",
        "hash",
        "keys",
        "add",
        "radd",
        "divmod",
        "deepcopy",
    ]
    methods = "\n".join(
        f"    def __{name}__(self, *a): return True if {name!r} not in ('iter', 'str') else iter('3')" for name in names
    )
    program = f"class A:\n{methods}\n    def __index__(self): return 3\n    def __float__(self): return 3.0\n    def __int__(self): return 3\ndef f(): return A()"
    assert checked(f"h = candidate()\nassert {use}", program).status == "wrong_answer"
