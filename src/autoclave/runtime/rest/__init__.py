"""Requests to REST services that can be undone: catalogues, sending, settling, compensating requests and proofs."""

from autoclave.runtime.rest.catalogue import Catalogue
from autoclave.runtime.rest.compensations import Compensations, Match, ProofStatus
from autoclave.runtime.rest.connection import ServiceConnection, lease_of_services
from autoclave.runtime.rest.loading import load_catalogue
from autoclave.runtime.rest.manager import RestManager
from autoclave.runtime.rest.openapi import catalogue_of_openapi

__all__ = [
    "Catalogue",
    "Compensations",
    "Match",
    "ProofStatus",
    "RestManager",
    "ServiceConnection",
    "catalogue_of_openapi",
    "lease_of_services",
    "load_catalogue",
]
