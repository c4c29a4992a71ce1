"""What the process runs on: devices, memory, the compilation cache, the log."""
