"""What training keeps on disk, in Marian's files, so that it can go on."""
