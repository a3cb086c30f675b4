"""Tables of other tools, with passcal's figures beside theirs."""
