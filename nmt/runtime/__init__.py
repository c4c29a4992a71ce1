"""The process: devices, memory, the compilation cache, the log."""
