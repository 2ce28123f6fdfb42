"""What client quotas do (KIP-13, KIP-124, KIP-599): how much a client has taken, and how long it must wait."""
