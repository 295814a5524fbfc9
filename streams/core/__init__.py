"""What decides: pure folds over ordered mailboxes, and the values they are written against."""
