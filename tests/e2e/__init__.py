"""End to end: real daemons, hosts and trainers as processes, spoken to over the wire."""
