"""Requests to REST services that can be undone: catalogues, sending, settling, compensating requests and proofs."""

from autoclave.runtime.rest.catalogue import Catalogue
from autoclave.runtime.rest.compensations import Compensations, ProofStatus
from autoclave.runtime.rest.connection import ServiceConnection, lease_of_services
from autoclave.runtime.rest.loading import catalogue_of_openapi, load_catalogue
from autoclave.runtime.rest.manager import RestManager

__all__ = [
    "Catalogue",
    "Compensations",
    "ProofStatus",
    "RestManager",
    "ServiceConnection",
    "catalogue_of_openapi",
    "lease_of_services",
    "load_catalogue",
]
