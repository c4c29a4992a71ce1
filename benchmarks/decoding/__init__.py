"""How decoding is measured: processes that translate, ours and those of peers."""
