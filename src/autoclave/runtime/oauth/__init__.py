"""Tokens by OAuth 2 for the services of the vault: a person's consent, renewal and revocation. Nobody is in between.

A token is at the boundary only: it comes from the provider into the vault, and goes from there into a request to the
hosts of its service. It is in no message, no argument of a program and no record.
"""

from autoclave.runtime.oauth.authorizing import Authorizing, Device, Wish
from autoclave.runtime.oauth.endpoints import discovered
from autoclave.runtime.oauth.source import TokenSource
from autoclave.runtime.vault.secret import Authorization, Provider

__all__ = ["Authorization", "Authorizing", "Device", "Provider", "TokenSource", "Wish", "discovered"]
