"""The programs of a method, with clients on the device or on the host."""
