"""The middle of the path put together: options -> first stage -> choices on held-out rows -> a fitted model."""
