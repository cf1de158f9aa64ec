"""Tables of operations of the three domains: lists of integers, strings of small letters, and integers.

A line is `name | phrasings | code | wrong versions of the code | kinds of parameters`, continued on indented lines.
` ; ` separates alternatives, and `items` marks a final whose value is a list.
"""

from __future__ import annotations

from collections.abc import Iterator

from autoclave.problems.synthetic.operations import Domain, Operation, Parameter


def _operations(table: str) -> Iterator[Operation]:
    for line in table.strip().replace("\n    ", " ").splitlines():
        name, phrasings, code, wrong, *kinds = line.replace("\\n", "\n").split(" | ")
        marks = kinds[0].split() if kinds else []
        parameters = tuple(Parameter(mark) for mark in marks if mark != "items")
        yield Operation(
            name, tuple(phrasings.split(" ; ")), code, tuple(wrong.split(" ; ")), parameters, has_items="items" in marks
        )


_LIST_OPERATIONS = r"""
keep-multiples | keep multiples of {p} ; keep numbers divisible by {p} | x = [v for v in x if v % {p} == 0] |
    x = [v for v in x if v % {p} != 0] ; x = [v for v in x if v % {p+1} == 0] | number
drop-multiples | drop multiples of {p} ; drop numbers divisible by {p} | x = [v for v in x if v % {p} != 0] |
    x = [v for v in x if v % {p} == 0] ; x = [v for v in x if v % {p+1} != 0] | number
keep-above | keep numbers above {p} ; keep numbers greater than {p} | x = [v for v in x if v > {p}] |
    x = [v for v in x if v >= {p}] ; x = [v for v in x if v < {p}] | number
keep-below | keep numbers below {p} ; keep numbers less than {p} | x = [v for v in x if v < {p}] |
    x = [v for v in x if v <= {p}] ; x = [v for v in x if v > {p}] | number
drop-above | drop numbers above {p} ; drop numbers greater than {p} | x = [v for v in x if v <= {p}] |
    x = [v for v in x if v > {p}] ; x = [v for v in x if v < {p}] | number
drop-below | drop numbers below {p} ; drop numbers less than {p} | x = [v for v in x if v >= {p}] |
    x = [v for v in x if v > {p}] ; x = [v for v in x if v < {p}] | number
drop-negative | drop negative numbers | x = [v for v in x if v >= 0] | x = [v for v in x if v > 0] ;
    x = [v for v in x if v < 0]
keep-even | keep even numbers ; drop odd numbers | x = [v for v in x if v % 2 == 0] |
    x = [v for v in x if v % 2 == 1] ; x = [v for v in x if v > 2]
cap | cap each at {p} ; limit each to at most {p} | x = [min(v, {p}) for v in x] | x = [max(v, {p}) for v in x] ;
    x = [min(v, {p-1}) for v in x] | number
add | add {p} to each ; increase each by {p} | x = [v + {p} for v in x] | x = [v + {p-1} for v in x] ;
    x = [v * {p} for v in x] | number
subtract | subtract {p} from each ; decrease each by {p} | x = [v - {p} for v in x] | x = [{p} - v for v in x] ;
    x = [v + {p} for v in x] | number
scale | multiply each by {p} ; scale each by {p} | x = [v * {p} for v in x] | x = [v + {p} for v in x] ;
    x = [v * {p+1} for v in x] | number
modulo | take each modulo {p} | x = [v % {p} for v in x] | x = [v // {p} for v in x] ; x = [v % {p+1} for v in x] |
    number
divide | divide each by {p} rounding down | x = [v // {p} for v in x] | x = [int(v / {p}) for v in x] ;
    x = [v % {p} for v in x] | number
square | square each | x = [v * v for v in x] | x = [v * 2 for v in x] ; x = [v * v * v for v in x]
absolute | take absolute values | x = [abs(v) for v in x] | x = [-v for v in x] ; x = [max(v, 0) for v in x]
double-above | double numbers above {p} | x = [v * 2 if v > {p} else v for v in x] |
    x = [v * 2 if v > {p} else {p} for v in x] ; x = [v * 2 if v < {p} else v for v in x] | number
replace | replace {p} by {q} ; change {p} to {q} | x = [{q} if v == {p} else v for v in x] |
    x = [{p} if v == {q} else v for v in x] ; x = [{q} if v != {p} else v for v in x] | number number
first | keep the first {p} | x = x[:{p}] | x = x[:{p+1}] ; x = x[{p}:] | count
last | keep the last {p} ; keep the trailing {p} | x = x[-{p}:] | x = x[{p}:] ; x = x[-{p-1}:] | count
skip | drop the first {p} ; skip the first {p} | x = x[{p}:] | x = x[{p-1}:] ; x = x[:{p}] | count
reverse | reverse the list | x = x[::-1] | x = sorted(x)[::-1] ; x = x[:-1]
sort | sort ascending ; sort from small to large | x = sorted(x) | x = sorted(x, reverse=True) ; x = sorted(set(x))
sort-down | sort descending ; sort from large to small | x = sorted(x, reverse=True) | x = x[::-1] ; x = sorted(x)
unique | remove repeats | x = list(dict.fromkeys(x)) | x = sorted(set(x)) ; x = [v for v in x if x.count(v) == 1]
even-indexes | take items at even indexes | x = x[::2] | x = x[1::2] ; x = [v for v in x if v % 2 == 0]
running-totals | take running totals | t = 0\ny = []\nfor v in x:\n    t += v\n    y.append(t)\nx = y |
    t = 0\ny = []\nfor v in x:\n    y.append(t)\n    t += v\nx = y ;
    t = 0\ny = []\nfor v in x:\n    t = v\n    y.append(t)\nx = y
differences | take differences of neighbours | x = [b - a for a, b in zip(x, x[1:])] |
    x = [a - b for a, b in zip(x, x[1:])] ; x = [b - a for a, b in zip(x, x[2:])]
rotate | move the first item to the end | x = x[1:] + x[:1] | x = x[-1:] + x[:-1] ; x = x[1:] + x[1:]
append | append {p} | x = x + [{p}] | x = [{p}] + x ; x = x + [{p+1}] | number
"""

_LIST_FINALS = r"""
items | the list | x | x[1:] ; sorted(x) | items
sum | the sum | sum(x) | sum(x[1:]) ; len(x)
count | how many remain | len(x) | len(set(x)) ; len(x) - 1
largest | the largest or 0 | max(x, default=0) | min(x, default=0) ; x[-1] if x else 0
smallest | the smallest or 0 | min(x, default=0) | max(x, default=0) ; x[0] if x else 0
last-item | the last item or 0 | x[-1] if x else 0 | x[0] if x else 0 ; max(x, default=0)
count-above | how many are above {p} | sum(v > {p} for v in x) | sum(v >= {p} for v in x) ;
    sum(v for v in x if v > {p}) | number
"""

_TEXT_OPERATIONS = r"""
reverse | read it backwards ; reverse it | s = s[::-1] | s = s[:-1] ; s = ''.join(sorted(s))
sort | put the letters in order ; sort the letters | s = ''.join(sorted(s)) | s = ''.join(sorted(set(s))) ;
    s = ''.join(sorted(s, reverse=True))
capitals | capitalise every letter | s = s.upper() | s = s.capitalize() ; s = s.lower()
double | double every character | s = ''.join(c + c for c in s) | s = s + s ; s = ''.join(c * 3 for c in s)
mirror | append its reverse | s = s + s[::-1] | s = s[::-1] + s ; s = s + s
prepend | prepend '{p}' ; put '{p}' in front | s = '{p}' + s | s = s + '{p}' ; s = '{p}'.join(s) | letter
append | append '{p}' ; put '{p}' at the end | s = s + '{p}' | s = '{p}' + s ; s = s + '{p}{p}' | letter
replace | replace '{p}' by '{q}' ; change '{p}' to '{q}' | s = s.replace('{p}', '{q}') |
    s = s.replace('{p}', '{q}', 1) ; s = s.replace('{q}', '{p}') | letter letter
remove | remove every '{p}' ; delete every '{p}' | s = s.replace('{p}', '') | s = s.strip('{p}') ;
    s = s.replace('{p}', '', 1) | letter
first | keep the first {p} | s = s[:{p}] | s = s[:{p+1}] ; s = s[{p}:] | count
last | keep the last {p} ; keep the trailing {p} | s = s[-{p}:] | s = s[{p}:] ; s = s[-{p-1}:] | count
skip | drop the first {p} ; skip the first {p} | s = s[{p}:] | s = s[{p-1}:] ; s = s[:{p}] | count
even-indexes | take letters at even indexes | s = s[::2] | s = s[1::2] ; s = s[:2]
rotate | move the first letter to the end | s = s[1:] + s[:1] | s = s[-1:] + s[:-1] ; s = s[1:] + s[1:]
consonants | remove vowels | s = ''.join(c for c in s if c not in 'aeiou') |
    s = ''.join(c for c in s if c in 'aeiou') ; s = ''.join(c for c in s if c not in 'aei')
unique | remove repeated letters | s = ''.join(dict.fromkeys(s)) | s = ''.join(sorted(set(s))) ;
    s = s.replace(s[:1], '')
"""

_TEXT_FINALS = r"""
text | the result | s | s[1:] ; s[:-1]
length | its length | len(s) | len(set(s)) ; len(s) - 1
occurrences | how often '{p}' occurs | s.count('{p}') | len(s) - s.count('{p}') ; s.find('{p}') | letter
different | how many different letters it has | len(set(s)) | len(s) ; len(s) - len(set(s))
last-letter | its last letter | s[-1:] | s[:1] ; s[:-1]
"""

_INTEGER_STARTS = r"""
sum | the sum of a and b | n = a + b | n = a - b ; n = a * b
product | the product of a and b | n = a * b | n = a + b ; n = a * a
difference | a minus b | n = a - b | n = b - a ; n = abs(a - b)
distance | the distance of a and b | n = abs(a - b) | n = a - b ; n = b - a
larger | the larger of a and b | n = max(a, b) | n = min(a, b) ; n = a
smaller | the smaller of a and b | n = min(a, b) | n = max(a, b) ; n = b
"""

_INTEGER_OPERATIONS = r"""
add | add {p} ; increase it by {p} | n = n + {p} | n = n + {p-1} ; n = n * {p} | number
subtract | subtract {p} ; decrease it by {p} | n = n - {p} | n = {p} - n ; n = n + {p} | number
scale | multiply it by {p} ; scale it by {p} | n = n * {p} | n = n + {p} ; n = n * {p+1} | number
modulo | take it modulo {p} | n = n % {p} | n = n // {p} ; n = n % {p+1} | number
divide | divide it by {p} rounding down | n = n // {p} | n = n % {p} ; n = int(n / {p}) | number
square | square it | n = n * n | n = n * 2 ; n = n * n * n
absolute | take its absolute value | n = abs(n) | n = -n ; n = max(n, 0)
cap | cap it at {p} ; limit it to at most {p} | n = min(n, {p}) | n = max(n, {p}) ; n = min(n, {p-1}) | number
shrink | if it is above {p} subtract {p} | if n > {p}:\n    n = n - {p} | if n > {p}:\n    n = n - 1 ;
    if n >= {p}:\n    n = n - {p} | number
halve-or-triple | if it is even halve it, else triple it | if n % 2 == 0:\n    n = n // 2\nelse:\n    n = n * 3 |
    if n % 2 == 0:\n    n = n // 2\nelse:\n    n = n * 3 + 1 ; if n % 2 == 1:\n    n = n // 2\nelse:\n    n = n * 3
halve-above | while it is above {p} halve it | while n > {p}:\n    n = n // 2 | if n > {p}:\n    n = n // 2 ;
    while n >= {p}:\n    n = n // 2 | number
digit-sum | add up its digits | n = sum(int(c) for c in str(abs(n))) | n = len(str(abs(n))) ;
    n = max(int(c) for c in str(abs(n)))
"""

_INTEGER_FINALS = r"""
number | the number | n | -n ; abs(n)
last-digit | its last digit | abs(n) % 10 | abs(n) // 10 ; n % 10
digits | how many digits it has | len(str(abs(n))) | len(str(n)) ; len(str(abs(n))) - 1
remainder | its remainder by {p} | n % {p} | n // {p} ; n % {p-1} | number
"""

LISTS = Domain(
    name="list",
    variable="x",
    arguments="x",
    call_opening="f(x) on a list",
    stdin_opening="read integers x",
    reading="x = list(map(int, input().split()))",
    starts=(),
    operations=tuple(_operations(_LIST_OPERATIONS)),
    finals=tuple(_operations(_LIST_FINALS)),
)
TEXTS = Domain(
    name="text",
    variable="s",
    arguments="s",
    call_opening="f(s) on a text",
    stdin_opening="read a line s",
    reading="s = input()",
    starts=(),
    operations=tuple(_operations(_TEXT_OPERATIONS)),
    finals=tuple(_operations(_TEXT_FINALS)),
)
INTEGERS = Domain(
    name="integer",
    variable="n",
    arguments="a, b",
    call_opening="f(a, b) on integers",
    stdin_opening="read integers a and b",
    reading="a, b = map(int, input().split())",
    starts=tuple(_operations(_INTEGER_STARTS)),
    operations=tuple(_operations(_INTEGER_OPERATIONS)),
    finals=tuple(_operations(_INTEGER_FINALS)),
)
