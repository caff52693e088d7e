"""The rounds of a method, recorded and resumed."""
