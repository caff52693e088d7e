"""The clients' devices, and the split depths that follow from them."""
