"""One adapter per framework; only here is a framework imported, in the user's process."""
