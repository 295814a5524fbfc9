"""Topics of others as sources of events: consumers by trigger, records to envelopes."""
