"""Text of others, made safe to look at: what shows as nothing or reorders text is spelled out. Pure."""

import re

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def made_visible(text: str) -> str:
    r"""`text` with control, invisible and text-reordering characters as escapes such as `\u202e`; tab and newline stay.

    Lone surrogates, which JSON can hold and UTF-8 cannot, become escapes too.
    """
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))
