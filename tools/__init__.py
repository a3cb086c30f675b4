"""Programs around the package that the package itself never imports."""
