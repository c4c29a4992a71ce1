"""What updates on many devices exchange, and how they scale: by arithmetic, and by the compiled programs."""
