"""Models that live: rows and labels are added to a fitted model and removed from it, without the other rows."""
