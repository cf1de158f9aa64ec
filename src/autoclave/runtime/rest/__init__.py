"""Requests to REST services that can be undone: catalogues, sending, settling, compensating requests and proofs."""
