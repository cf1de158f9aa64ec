"""Sealed cells from Linux namespaces. (theory of operation to come)"""
