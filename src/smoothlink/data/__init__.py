"""Reading and writing data files: formats, recognition, one atomic write."""
