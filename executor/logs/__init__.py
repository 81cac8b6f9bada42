"""The logs on a broker's disks: directories, checkpoints and maintenance."""
