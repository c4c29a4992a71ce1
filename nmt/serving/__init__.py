"""Translation for other programs: marian-server's websockets."""
