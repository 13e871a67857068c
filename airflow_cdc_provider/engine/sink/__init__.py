"""A sink whose transactions hold rows and ledger: what it commits, decided once for all of them."""
