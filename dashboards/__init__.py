"""Grafana dashboards as code (they come with the service; nothing is published yet)."""
