"""A config becomes a task and the setup of each method, checked."""
