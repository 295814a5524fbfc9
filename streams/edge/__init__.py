"""Where effects live: what talks to the world performs an intent and appends the outcome."""
