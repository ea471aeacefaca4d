"""Migrations: what is stored is made to fit a changed spec."""
