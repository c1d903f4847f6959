"""What `hermesd` does besides running its daemons; each is imported when it is asked for."""
