"""Problems in words with one-line solutions, for small pretrained models, and their split by function.

A held-out function occurs in no training problem, whatever its constant. Same settings, same problems, in any process.
Reference expressions are our own and are evaluated in this process; output of a model is not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from autoclave.config import FunctionsConfig
from autoclave.core import CallCase, CallTests, Problem
from autoclave.problems.synthetic.split import lowest

_NUM_TESTS = 8
_NUM_DRAWS = 8
_TIME_LIMIT_S = 2.0
_WORDS = (
    *("apple", "Bird", "carrot", "dog", "Engine", "forest", "garden", "House", "island", "jacket", "King", "lemon"),
    *("mountain", "Night", "orange", "paper", "Queen", "river", "stone", "Table", "under", "violet", "Window", "year"),
    *("zebra", "is", "on", "at", "the", "green"),
)


def build_functions(config: FunctionsConfig) -> tuple[list[Problem], list[Problem]]:
    """Return training and held-out problems."""
    lines = FUNCTIONS.splitlines()
    kept = set(lowest(lines, config.heldout_share, f"{config.seed} function"))
    train = [problem for line in lines if line not in kept for problem in _problems(line)]
    return train, [problem for line in lines if line in kept for problem in _problems(line)]


def _problems(line: str) -> Iterator[Problem]:
    header, expression, words, *constants = (part.strip() for part in line.split(" | "))
    for constant in constants[0].split() if constants else [""]:
        yield _problem(header, expression.replace("K", constant), words.replace("K", constant), constant)


def _problem(header: str, expression: str, words: str, constant: str) -> Problem:
    name, arguments = header.removesuffix(")").split("(")
    function = eval(f"lambda {arguments}: {expression}")
    identity = f"{name}-{constant}" if constant else name
    kinds = arguments.split(", ")
    return Problem(
        id=f"functions/{identity}",
        statement=f"Write a Python function `{header}` that returns {words}.",
        solutions=[f"def {header}:\n    return {expression}"],
        tests=CallTests("call", name, _cases(function, kinds, random.Random(identity))),
        time_limit_s=_TIME_LIMIT_S,
        source="functions",
        tags=kinds,
    )


def _cases(function: Callable[..., Any], kinds: list[str], rng: random.Random) -> list[CallCase]:
    """Return tests with different values: of a few draws, those with the most."""
    draws = [[[_DRAWN[kind](rng) for kind in kinds] for _ in range(_NUM_TESTS)] for _ in range(_NUM_DRAWS)]
    found = [[CallCase(inputs, function(*inputs)) for inputs in draw] for draw in draws]
    return max(found, key=lambda cases: len({str(case.output) for case in cases}))


def _number(rng: random.Random) -> int:
    return rng.randint(1, 40)


_DRAWN: dict[str, Callable[[random.Random], Any]] = {
    "numbers": lambda rng: [rng.randint(-9, 20) for _ in range(rng.randint(3, 8))],
    "text": lambda rng: " ".join(rng.choices(_WORDS, k=rng.randint(2, 5))),
    "words": lambda rng: rng.choices(_WORDS, k=rng.randint(2, 6)),
    **dict.fromkeys("nab", _number),
}
"""Draws an argument of each name."""


FUNCTIONS = """
sum_of_squares(numbers) | sum(x * x for x in numbers) | the sum of the squares of the numbers in a list
sum_of_even(numbers) | sum(x for x in numbers if x % 2 == 0) | the sum of the even numbers in a list
sum_of_odd(numbers) | sum(x for x in numbers if x % 2 != 0) | the sum of the odd numbers in a list
sum_of_absolute(numbers) | sum(abs(x) for x in numbers) | the sum of the absolute values of the numbers in a list
sum_above(numbers) | sum(x for x in numbers if x > K) | the sum of the numbers in a list that are greater than K | 2 5 8
sum_of_largest(numbers) | sum(sorted(numbers)[-K:]) | the sum of the K largest numbers in a list | 2 3
count_even(numbers) | sum(x % 2 == 0 for x in numbers) | how many numbers in a list are even
count_odd(numbers) | sum(x % 2 != 0 for x in numbers) | how many numbers in a list are odd
count_negative(numbers) | sum(x < 0 for x in numbers) | how many numbers in a list are negative
count_above(numbers) | sum(x > K for x in numbers) | how many numbers in a list are greater than K | 3 6 10
count_divisible(numbers) | sum(x % K == 0 for x in numbers) | how many numbers in a list are divisible by K | 3 4
count_distinct(numbers) | len(set(numbers)) | how many different numbers are in a list
spread(numbers) | max(numbers) - min(numbers) | the difference between the largest and the smallest number in a list
largest_absolute(numbers) | max(abs(x) for x in numbers) | the largest absolute value of the numbers in a list
index_of_largest(numbers) | numbers.index(max(numbers)) | the index of the largest number in a list
index_of_smallest(numbers) | numbers.index(min(numbers)) | the index of the smallest number in a list
product_of_ends(numbers) | numbers[0] * numbers[-1] | the product of the first and the last number in a list
sum_of_ends(numbers) | numbers[0] + numbers[-1] | the sum of the first and the last number in a list
has_negative(numbers) | any(x < 0 for x in numbers) | True if a list contains a negative number, else False
all_below(numbers) | all(x < K for x in numbers) | True if all numbers in a list are less than K, else False | 15 18
reverse_list(numbers) | numbers[::-1] | the list in reverse order
sort_descending(numbers) | sorted(numbers, reverse=True) | the list sorted from largest to smallest
sort_by_absolute(numbers) | sorted(numbers, key=abs) | the list sorted by absolute value
remove_duplicates(numbers) | list(dict.fromkeys(numbers)) | the list without duplicates, in the original order
keep_positive(numbers) | [x for x in numbers if x > 0] | a list of the positive numbers in the list
keep_even(numbers) | [x for x in numbers if x % 2 == 0] | a list of the even numbers in the list
keep_odd(numbers) | [x for x in numbers if x % 2 != 0] | a list of the odd numbers in the list
keep_divisible(numbers) | [x for x in numbers if x % K == 0] | a list of the numbers that are divisible by K | 3 4
keep_above(numbers) | [x for x in numbers if x > K] | a list of the numbers that are greater than K | 1 4 7
keep_below(numbers) | [x for x in numbers if x < K] | a list of the numbers that are less than K | 3 9
multiply_each(numbers) | [x * K for x in numbers] | a list with each number multiplied by K | 2 3 10
add_to_each(numbers) | [x + K for x in numbers] | a list with K added to each number | 1 5 7
subtract_from_each(numbers) | [x - K for x in numbers] | a list with K subtracted from each number | 2 4
halve_each(numbers) | [x // K for x in numbers] | a list with each number divided by K, rounded down | 2 3
remainders(numbers) | [x % K for x in numbers] | a list of the remainders of the numbers after division by K | 3 5
powers(numbers) | [x ** K for x in numbers] | a list with each number raised to the power K | 2 3
absolute_values(numbers) | [abs(x) for x in numbers] | a list of the absolute values of the numbers
negate_each(numbers) | [-x for x in numbers] | a list with the sign of each number changed
limit_each(numbers) | [min(x, K) for x in numbers] | a list in which each number greater than K is replaced by K | 5 9
replace_negative(numbers) | [max(x, 0) for x in numbers] | a list in which each negative number is replaced by 0
first_numbers(numbers) | numbers[:K] | the first K numbers of a list | 2 3
last_numbers(numbers) | numbers[-K:] | the last K numbers of a list | 2 3
skip_first(numbers) | numbers[K:] | the list without its first K numbers | 2 3
every_second(numbers) | numbers[::2] | a list of every second number, beginning with the first
rotate_left(numbers) | numbers[K:] + numbers[:K] | the list with its first K numbers moved to the end | 2 3
smallest_numbers(numbers) | sorted(numbers)[:K] | the K smallest numbers of a list in ascending order | 2 3
largest_numbers(numbers) | sorted(numbers, reverse=True)[:K] | the K largest numbers of a list in descending order | 2 3
append_sum(numbers) | numbers + [sum(numbers)] | the list with the sum of its numbers added at the end
put_in_front(numbers) | [K] + numbers | the list with the number K added at the front | 0 7
repeat_list(numbers) | numbers * K | the list repeated K times | 2 3
differences(numbers) | [b - a for a, b in zip(numbers, numbers[1:])] | a list of the differences between neighbours
running_sum(numbers) | [sum(numbers[: i + 1]) for i in range(len(numbers))] | a list of the running sums of the numbers
times_index(numbers) | [i * x for i, x in enumerate(numbers)] | a list with each number multiplied by its index
numbers_as_strings(numbers) | [str(x) for x in numbers] | a list of the numbers as strings
join_numbers(numbers) | ",".join(str(x) for x in numbers) | a string of the numbers, separated by commas
reverse_text(text) | text[::-1] | the string reversed
upper_text(text) | text.upper() | the string in upper case
lower_text(text) | text.lower() | the string in lower case
swap_case(text) | text.swapcase() | the string with upper and lower case swapped
count_vowels(text) | sum(c in "aeiou" for c in text.lower()) | the number of vowels in a string
remove_vowels(text) | "".join(c for c in text if c.lower() not in "aeiou") | the string without its vowels
count_words(text) | len(text.split()) | the number of words in a string
count_upper(text) | sum(c.isupper() for c in text) | the number of upper-case letters in a string
count_letter(text) | text.count("K") | how often the letter K occurs in a string | a e r
remove_letter(text) | text.replace("K", "") | the string without the letter K | a e o
replace_letter(text) | text.replace("K", "*") | the string with each letter K replaced by * | e n t
replace_spaces(text) | text.replace(" ", "K") | the string with each space replaced by K | _ - +
remove_spaces(text) | text.replace(" ", "") | the string without its spaces
reverse_words(text) | " ".join(text.split()[::-1]) | the string with its words in reverse order
initials(text) | "".join(word[0] for word in text.split()) | a string of the first letters of the words in a string
longest_word(text) | max(text.split(), key=len) | the longest word in a string, the first one if there are several
word_lengths(text) | [len(word) for word in text.split()] | a list of the lengths of the words in a string
long_words(text) | [word for word in text.split() if len(word) > K] | a list of the words longer than K letters | 4 5
first_characters(text) | text[:K] | the first K characters of a string | 3 4 5
last_characters(text) | text[-K:] | the last K characters of a string | 2 3 4
skip_characters(text) | text[K:] | the string without its first K characters | 2 3
repeat_text(text) | text * K | the string repeated K times | 2 3 4
repeat_characters(text) | "".join(c * K for c in text) | the string with each character repeated K times | 2 3
list_of_characters(text) | list(text) | a list of the characters in a string
sort_letters(text) | "".join(sorted(text)) | the characters of a string in sorted order, as a string
sorted_words(text) | sorted(text.split()) | a sorted list of the words in a string
count_characters(text) | len(set(text)) | the number of different characters in a string
first_and_last(text) | text[0] + text[-1] | the first and the last character of a string, as one string
put_at_end(text) | text + "K" | the string with K added at the end | ! ?
capitalize_words(text) | text.title() | the string with the first letter of each word in upper case
join_words(words) | "K".join(words) | a string of all words, separated by K | - + /
lengths(words) | [len(word) for word in words] | a list of the lengths of the words
upper_words(words) | [word.upper() for word in words] | a list of the words in upper case
longest_length(words) | max(len(word) for word in words) | the length of the longest word in a list
first_letters(words) | [word[0] for word in words] | a list of the first letters of the words
last_letters(words) | [word[-1] for word in words] | a list of the last letters of the words
sort_by_length(words) | sorted(words, key=len) | the list of words sorted by length
total_length(words) | sum(len(word) for word in words) | the total number of letters of the words in a list
words_above(words) | [word for word in words if len(word) > K] | a list of the words with more than K letters | 4 5
words_with(words) | [word for word in words if "K" in word] | a list of the words that contain the letter K | a e
count_words_with(words) | sum("K" in word for word in words) | how many words in a list contain the letter K | o r
reverse_each(words) | [word[::-1] for word in words] | a list with each word reversed
add_ending(words) | [word + "K" for word in words] | a list with K added at the end of each word | s ing
last_in_order(words) | max(words) | the word of a list that is last in alphabetical order
is_divisible(n) | n % K == 0 | True if n is divisible by K, else False | 2 3 4
digit_sum(n) | sum(int(d) for d in str(n)) | the sum of the digits of n
largest_digit(n) | max(int(d) for d in str(n)) | the largest digit of n
reverse_digits(n) | int(str(n)[::-1]) | the number with the digits of n in reverse order
last_digit(n) | n % 10 | the last digit of n
sum_up_to(n) | sum(range(1, n + 1)) | the sum of the numbers from 1 to n
squares_up_to(n) | sum(i * i for i in range(1, n + 1)) | the sum of the squares of the numbers from 1 to n
multiples_up_to(n) | [i for i in range(1, n + 1) if i % K == 0] | a list of the multiples of K from 1 to n | 2 3 5
count_down(n) | list(range(n, 0, -1)) | a list of the numbers from n down to 1
square_list(n) | [i * i for i in range(1, n + 1)] | a list of the squares of the numbers from 1 to n
divisors(n) | [d for d in range(1, n + 1) if n % d == 0] | a list of the divisors of n
first_multiples(n) | [n * i for i in range(1, K + 1)] | a list of the first K multiples of n | 3 5
power_of(n) | K ** n | K raised to the power n | 2 3
binary(n) | bin(n)[2:] | n in binary, as a string without a prefix
stars(n) | "K" * n | a string of n times the character K | * x
square_plus(n) | n * n + K | the square of n plus K | 1 4
at_most(n) | min(n, K) | n, but at most K | 9 20
larger(a, b) | max(a, b) | the larger of two numbers
distance(a, b) | abs(a - b) | the absolute difference of two numbers
sum_of_two_squares(a, b) | a * a + b * b | the sum of the squares of two numbers
scaled_sum(a, b) | K * (a + b) | K times the sum of two numbers | 2 3
numbers_between(a, b) | list(range(a, a + b)) | a list of the b numbers that begin with a
same_parity(a, b) | a % 2 == b % 2 | True if two numbers are both even or both odd, else False
""".strip()
