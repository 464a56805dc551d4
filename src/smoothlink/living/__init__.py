"""Models that live: rows come and go, and labels are added."""
