class PriceError(ValueError):
    pass


def total(prices, discount=0):
    if discount < 0:
        raise PriceError("negative discount")
    return round(sum(prices) * (1 - discount), 2)


def receipt(items):
    found = {}
    for name, price in items:
        found[name] = round(found.get(name, 0) + price, 2)
    return found


def label(name, amount):
    return f"{name}: {amount:.2f}"


def cheapest(prices):
    return sorted(prices)[:2]


class Basket:
    def __init__(self):
        self.items = []

    def add(self, name, price):
        self.items.append((name, price))
        return self

    def total(self):
        return total([price for _, price in self.items])
