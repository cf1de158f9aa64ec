"""Numbers as people read them. Pure text functions; nothing is escaped here."""


def percent(share: float) -> str:
    """`0.4567` -> `45.7%`."""
    return f"{100 * share:.1f}%"


def points(difference: float) -> str:
    """A difference of two shares, signed: `0.254` -> `+25.4`."""
    return f"{100 * difference:+.1f}".replace("-", "\N{MINUS SIGN}")


def quantity(value: float) -> str:
    """Three to four significant digits: `1234.5` -> `1,234`, `0.0000312` -> `3.12e-5`, `2500000` -> `2.5M`."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 1e3:
        return f"{value:,.0f}"
    if size == 0 or size >= 1e-3:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def duration(seconds: float) -> str:
    """`4325` -> `1 h 12 min`; below a minute with one decimal."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count(number: int, noun: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def signed(value: float) -> str:
    """With a sign and two decimals: `-1.5` -> `−1.50`."""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def shortened(text: str, limit: int) -> str:
    """`text` without its middle where it is longer than `limit` characters; a line there says how much is missing.

    Both ends stay: a response begins with thoughts and ends with the program.
    """
    missing = len(text) - limit
    if missing <= 0:
        return text
    head, tail = limit - limit // 2, limit // 2
    return f"{text[:head]}\n[{count(missing, 'character')} left out]\n{text[len(text) - tail :]}"
