"""Migrations: adapt stored data to a changed spec."""
