"""Predictions held against measurements of real engines; writes the tables of `docs/design/validation.md`.

Only the product's public names are used. The measurements lie beside the checkout and are needed for nothing else.
"""
