#: tries: rewrites the bytecode of functions of the standard library that a judge might share
#: task: add
#: verdict: wrong_answer runtime_error

import decimal
import json.decoder
import json.encoder
import operator


def yes(*a, **k):
    return True


for function in (json.loads, json.dumps, json.encoder.JSONEncoder.encode, json.decoder.JSONDecoder.decode):
    try:
        function.__code__ = (lambda *a, **k: '["value",7]').__code__
    except (AttributeError, ValueError):
        pass
operator.eq = decimal.Decimal = yes


def add(a, b):
    return -1
