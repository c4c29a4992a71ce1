"""Speed and memory, measured side by side with peers: ``python -m benchmarks`` lists the benchmarks."""
