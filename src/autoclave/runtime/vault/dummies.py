"""Dummies, which code and models see in place of a secret. Pure.

A dummy has the length, separators and alphabets of its secret, and its prefix if that is a known one of a service, so
that code which checks the format of a key works. All else is drawn: what merely looks like a prefix may be a part of
the secret. It is derived from a key of the session, so each session has its own dummies.
"""

import hmac
import random
import re
import string

from autoclave.core import InputError

_KNOWN_PREFIXES = re.compile(
    r"sk-(?:proj-|svcacct-|admin-|or-v1-|lf-|ant-(?:(?:api|admin|oat|sid)[0-9]{2}-)?)?|[spr]k_(?:live|test)_|whsec_"
    r"|gh[pousr]_|github_pat_|gl(?:pat|dt|rt|ptt|cbt|oas)-|xox[abeprs]-|xapp-|A[KS]IA|ya29\.|AIza|GOCSPX-|eyJ"
    r"|hf_|npm_|pypi-|gsk_|xai-|pplx-|r8_|SG\.|key-|do[opr]_v1_|shp(?:at|ca|pa|ss)_|ntn_|secret_|lin_api_|figd_|hvs\."
    r"|NRAK-|PMAK-|dapi|sbp_|pscale_tkn_|sntrys_|ATATT3x"
)
_LEAST_DRAWN = 6
"""With fewer, a dummy or the key could occur in traffic by chance."""


def dummy_of(value: str, service: str, session_key: bytes) -> str:
    """Return the dummy of a secret in a session, never the secret; raise InputError if the secret is too short."""
    known = _KNOWN_PREFIXES.match(value)
    prefix = known[0] if known else ""
    rest = value[len(prefix) :]
    if sum(character.isascii() and character.isalnum() for character in rest) < _LEAST_DRAWN:
        raise InputError(
            f"the key of {service}: needs at least {_LEAST_DRAWN} letters or digits after what all keys of its kind "
            "begin with, or no dummy can be told from it"
        )
    is_hexadecimal = not set(rest) - set(string.hexdigits + "-_.")
    draw = random.Random(hmac.digest(session_key, service.encode(), "sha256"))
    dummy = value
    while dummy.lower() == value.lower():
        dummy = prefix + "".join(draw.choice(_alphabet_of(character, is_hexadecimal)) for character in rest)
    return dummy


def _alphabet_of(character: str, is_hexadecimal: bool) -> str:
    if is_hexadecimal and character in string.hexdigits:
        return string.digits + ("ABCDEF" if character.isupper() else "abcdef")
    alphabets = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    return next((alphabet for alphabet in alphabets if character in alphabet), character)
