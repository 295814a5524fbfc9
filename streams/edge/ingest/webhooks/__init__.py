"""Webhooks: deliveries of known providers, checked against their signatures and made events."""
