"""What the pages take from the program: the commands, the public names, figures of the benchmark, the sources."""
