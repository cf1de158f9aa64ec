"""Secrets that neither a model nor generated code ever sees: an encrypted file, dummies and a proxy."""

from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.vault import KeyFile, Passphrase, Vault

__all__ = ["KeyFile", "Passphrase", "Secret", "Vault"]
