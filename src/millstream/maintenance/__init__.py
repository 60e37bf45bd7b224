"""What keeps an application's files few and its state recoverable, beside the epochs."""
