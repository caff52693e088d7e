"""The compiled programs of a method, and the trainer that runs them."""
