"""The engine: compiles a Method into one round over all clients."""
