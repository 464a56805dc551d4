"""File formats, one file each: `read(path, options) -> Data` and `write(data, path)`."""
