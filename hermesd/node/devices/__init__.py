"""What a trial can occupy on this machine: CPU slots and GPUs."""
