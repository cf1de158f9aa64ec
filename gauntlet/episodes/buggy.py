class PriceError(ValueError):
    pass


def total(prices, discount=0):
    return sum(prices) - discount


def receipt(items):
    return dict(items)


def label(name, amount):
    return name + str(amount)


def cheapest(prices):
    return prices


class Basket:
    def __init__(self):
        self.items = []

    def add(self, name, price):
        self.items = [(name, price)]
        return self

    def total(self):
        return len(self.items)
