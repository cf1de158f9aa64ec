import unittest

import pytest

from shop import pricing
from shop.pricing import Basket, PriceError, cheapest, label, receipt


@pytest.fixture
def items():
    yield [("a", 1.5), ("b", 2), ("a", 0.5)]


def test_total():
    assert pricing.total([10, 20], 0.1) == 27.0


@pytest.mark.parametrize(("prices", "discount", "expected"), [([10, 20], 0.5, 15.0), ([0.1, 0.2], 0, 0.3)])
def test_totals(prices, discount, expected):
    assert pricing.total(prices, discount=discount) == pytest.approx(expected)
    assert pricing.total(prices, discount=discount) == expected


def test_negative_discount():
    assert pricing.total([5, 7], 0.25) == 9.0
    with pytest.raises(PriceError, match="negative"):
        pricing.total([1.0], -0.1)


def test_receipt(items):
    assert receipt(items) == {"a": 2.0, "b": 2}
    assert items == [("a", 1.5), ("b", 2), ("a", 0.5)]


def test_cheapest():
    assert cheapest([3.5, 1, 2]) == [1, 2]


class TestBasket:
    def test_total(self):
        basket = Basket()
        basket.add("a", 1.25)
        assert basket.add("b", 2.5).total() == 3.75


class PricingTest(unittest.TestCase):
    def test_label(self):
        self.assertEqual(label("a", 2.5), "a: 2.50")
