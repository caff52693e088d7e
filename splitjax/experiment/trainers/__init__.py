"""A method's programs, with clients on the device or on the host."""
