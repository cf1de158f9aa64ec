"""Requests to REST services that can be taken back: catalogues of pairs, sending, settling, verifying."""

from autoclave.runtime.rest.catalogue import Catalogue
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.rest.leases import lease_of_services
from autoclave.runtime.rest.loading import load_catalogue
from autoclave.runtime.rest.manager import RestManager
from autoclave.runtime.rest.openapi import catalogue_of_openapi
from autoclave.runtime.rest.pairs import Match, Pairs, PairStatus

__all__ = [
    "Catalogue",
    "Match",
    "PairStatus",
    "Pairs",
    "RestManager",
    "ServiceConnection",
    "catalogue_of_openapi",
    "lease_of_services",
    "load_catalogue",
]
